"""What a deployment writes is its owner's alone."""

from pathlib import Path

from feddst.flower.deployment.local import LocalDeployment
from feddst.flower.deployment.private import make_private, open_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_directories_are_private_and_old_ones_stay_as_they_are(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    old.chmod(0o755)
    make_private(old / "new" / "inner")
    assert [mode(path) for path in (old, old / "new", old / "new" / "inner")] == [0o755, 0o700, 0o700]


def test_a_private_file_goes_on_at_its_end(tmp_path: Path) -> None:
    for part in (b"one ", b"two"):
        with open_private(tmp_path / "file") as file:
            file.write(part)
    assert (tmp_path / "file").read_bytes() == b"one two"
    assert mode(tmp_path / "file") == 0o600


def test_a_deployment_that_has_not_begun_has_nothing_that_others_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    folder.chmod(0o755)
    LocalDeployment(folder, 1)
    found = {path.name: mode(path) for path in folder.iterdir()}
    assert found == {"superlink.db": 0o600, "certificates": 0o700}
    LocalDeployment(tmp_path / "new", 1)
    assert mode(tmp_path / "new") == 0o700
