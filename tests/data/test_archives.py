"""Tar archives are read in memory, whatever they claim to be."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from feddst.data import archives
from feddst.data.archives import members
from feddst.errors import DataError

FILES = {"a/one": b"1" * 700, "a/two": b"22", "b/three": b""}


def everything(name: str) -> bool:
    return True


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    def build(files: dict[str, bytes] = FILES, compression: str = "", prefix: str = "") -> Path:
        path = tmp_path / "x.tar"
        with tarfile.open(path, f"w:{compression}") as tar:  # type: ignore[call-overload]
            for name, content in files.items():
                header = tarfile.TarInfo(prefix + name)
                header.size = len(content)
                tar.addfile(header, io.BytesIO(content))
        return path

    return build


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_wanted_files_are_read(make: Callable[..., Path], compression: str, prefix: str) -> None:
    path = make(compression=compression, prefix=prefix)
    assert dict(members(path, everything, 1000)) == FILES
    assert dict(members(path, "a/two".__eq__, 10)) == {"a/two": b"22"}


def test_links_and_folders_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("a", tarfile.DIRTYPE), ("b", tarfile.SYMTYPE), ("c", tarfile.LNKTYPE)):
            header = tarfile.TarInfo(name)
            header.type = kind
            header.linkname = "/etc/passwd"
            tar.addfile(header)
    assert list(members(path, everything, 1000)) == []


def test_a_large_file_is_refused(make: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="a/one has 700 bytes, more than the 699 allowed"):
        list(members(make(), everything, 699))


def test_a_header_that_claims_much_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    header.size = 1 << 40
    path = tmp_path / "x.tar"
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(DataError, match=f"a header claims {1 << 40} bytes"):
        list(members(path, everything, 1000))


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
@pytest.mark.parametrize("keep", [0.02, 0.5, 0.97])
def test_a_cut_archive_is_refused(make: Callable[..., Path], compression: str, keep: float) -> None:
    path = make({f"a/{i}": bytes([i]) * 1000 for i in range(40)}, compression)
    content = path.read_bytes()
    # Less than the padding and the closing blocks is no loss, so an uncompressed archive is cut before those.
    end = 40 * 1536 if not compression else len(content)
    path.write_bytes(content[: int(keep * end)])
    with pytest.raises(DataError, match=r"x\.tar"):
        list(members(path, everything, 2000))


def test_an_archive_cut_between_two_files_is_refused(make: Callable[..., Path]) -> None:
    path = make()
    path.write_bytes(path.read_bytes()[: 512 + 1024])
    with pytest.raises(DataError, match="the archive is cut off"):
        list(members(path, everything, 1000))


def test_a_flipped_bit_is_found(make: Callable[..., Path]) -> None:
    path = make({"a": bytes(range(256)) * 20}, "gz")
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # in the checksum at the end
    path.write_bytes(content)
    with pytest.raises(DataError, match="CRC check failed"):
        list(members(path, everything, 6000))


@pytest.mark.parametrize("content", [b"", b"no archive", bytes(100)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as a tar archive"):
        list(members(path, everything, 1000))


@pytest.mark.parametrize("wanted", [everything, "nothing of it".__eq__])
def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, wanted: Callable[[str], bool]
) -> None:
    path = make({f"a/{i}": bytes(400_000) for i in range(4)}, "xz")  # 1,600,000 bytes of zeros, and four headers
    packed = path.stat().st_size
    assert len(list(members(path, everything, 500_000))) == 4, "1 GiB is always allowed"
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1_000_000)
    assert 100 * packed < 1_000_000
    with pytest.raises(DataError, match=rf"x\.tar: {packed} bytes unpack to more than the 1000000 allowed"):
        list(members(path, wanted, 500_000))
    monkeypatch.setattr(archives, "EXPANSION", 2_000_000 // packed)
    assert len(list(members(path, everything, 500_000))) == 4


def test_what_follows_the_last_file_counts_too(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(compression="gz")
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(1_000_000)))
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 500_000)
    with pytest.raises(DataError, match="more than the 500000 allowed"):
        list(members(path, everything, 1000))


def test_files_that_only_claim_their_zeros_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(3):  # sparse files of 400,000 bytes, of which the archive holds none
            header = tarfile.TarInfo(str(i))
            header.pax_headers = {
                "GNU.sparse.major": "0",
                "GNU.sparse.minor": "1",
                "GNU.sparse.map": "400000,0",
                "GNU.sparse.size": "400000",
            }
            tar.addfile(header)
    assert [len(content) for _, content in members(path, everything, 500_000)] == [400_000] * 3
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1_000_000)
    monkeypatch.setattr(archives, "EXPANSION", 1)
    with pytest.raises(DataError, match="more than the 1000000 allowed"):
        list(members(path, everything, 500_000))
