"""Whatever is wrong with the input: one line, exit code 2, and nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

CASES = [
    ("rnu", "unknown command 'rnu'; did you mean 'run'?"),
    ("zzz", "unknown command 'zzz'; it must be one of run, compare, reproduce, study, report, export, flower simulate"),
    ("data shwo", "unknown command 'data shwo'; did you mean 'data show'?"),
    ("run --sparisty.level 0.5", "unknown option --sparisty.level; did you mean --sparsity.level?"),
    ("run --level 0.5", "unknown option --level; did you mean --sparsity.level?"),
    ("run --every 5", "unknown option --every; did you mean --readjust.every or --sprout.every or --prunefl.every?"),
    ("compare --resume", "unknown option --resume: the same command with the same --out goes on"),
    ("reproduce table1 --resume", "unknown option --resume: the same command with the same --out goes on"),
    ("run --resume runs/x", "unexpected argument 'runs/x'; did you mean --out runs/x?"),
    ("data show --sparsity.level 0.5", "unknown option --sparsity.level"),
    ("run --method fedts", "got 'fedts'; did you mean 'feddst'?"),
    ("compare --methods fedavgm,radnommask", "got 'radnommask'; did you mean 'randommask'?"),
    ("run --preset tabel1-feddst", "unknown preset 'tabel1-feddst'; did you mean 'table1-feddst'?"),
    ("presets qiuck", "unknown preset 'qiuck'; did you mean 'quick'?"),
    ("run --preset nope", "unknown preset 'nope'; `feddst presets` lists them"),
    ("run --preset table1", "preset table1 is for `feddst compare`, not for `feddst run`"),
    ("compare --preset table1-feddst", "preset table1-feddst is for `feddst run`, not for `feddst compare`"),
    ("run --sparsity.level 1", "sparsity.level must be in [0, 1), got 1.0"),
    ("run --local.lr nan", "local.lr must be above 0, got nan"),
    ("run --model.head sotfmax", "must be one of logits, softmax, got 'sotfmax'; did you mean 'softmax'?"),
    ("run --rounds 0", "rounds is 0 and so is cap_gib"),
    ("run --cohort.size 401", "cohort.size must be at most data.clients (400), got 401"),
    ("run --data.clients 4000", "examples; lower data.clients or data.images_per_class, or choose data.partition"),
    ("data show --data.clients 4000", "data.clients"),
    ("run --method fedavgm --sparsity.level 0.5", "sparsity.level has no effect on fedavgm"),
    ("run --method fedavg --local.momentum 0.5", "local.momentum is fixed at 0.0 by fedavg"),
    ("compare --methods fedavgm,fedprox --readjust.every 5", "readjust.every has no effect on fedavgm, fedprox"),
    ("run --data.dataset cifar10 --data.root missing", "missing"),
    ("run --data.dataset folder --data.root missing", "missing"),
    ("run --data.dataset folder", "data.root must name an image directory"),
    ("run --config missing.toml", "cannot read config missing.toml"),
    ("run --resume", "--resume needs --out"),
    ("run --resume --out missing", "missing holds no run"),
    ("run --engine.device tpu", "engine.device must be cpu, cuda or cuda:N, got 'tpu'"),
    ("compare --methods=", "methods must not be empty"),
    ("compare --seeds 0,1,0", "seeds names 0 twice"),
    ("compare --caps 0", "caps must be above 0, got 0.0"),
    ("compare --method feddst", "unknown option --method; did you mean --methods?"),
    ("compare --methods feddst:sparsity.level", "needs option=value after each colon"),
    ("compare --methods feddst:sparsity.levle=1", "did you mean 'sparsity.level'?"),
    ("compare --methods feddst:sparsity.level=2", "sparsity.level must be in [0, 1), got 2.0"),
    ("compare --methods fedavgm:sparsity.level=0.5", "sparsity.level has no effect on fedavgm"),
    ("compare --methods feddst:data.clients=5", "must be the same for all that is compared"),
]


@pytest.mark.parametrize(("line", "message"), CASES, ids=[line for line, _ in CASES])
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    feddst: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.setenv("FEDDST_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr("feddst.data.cifar.fetch", refuse_to_download)
    outcome = feddst(line)
    assert outcome.code == 2
    [complaint] = outcome.err.splitlines()
    assert complaint.startswith("feddst: ")
    assert message in complaint
    assert list(tmp_path.iterdir()) == []


def refuse_to_download(url: str, folder: Path, md5: str) -> Path:
    from feddst.errors import DataError

    raise DataError(f"cannot download {url}: put it into {folder}")


def test_a_file_with_an_unknown_option_is_named(feddst: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[sparsity]\nlevle = 0.5\n")
    outcome = feddst("run --config mine.toml")
    assert outcome.code == 2
    assert outcome.err == ("feddst: unknown option 'sparsity.levle' in mine.toml; did you mean 'sparsity.level'?\n")


def test_a_damaged_data_set_is_refused(feddst: Call, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "data_batch_1").write_bytes(b"damaged")
    outcome = feddst("run --data.dataset cifar10 --data.root data")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("feddst: ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_directory_with_other_things_in_it_is_left_alone(feddst: Call, tmp_path: Path, command: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    outcome = feddst(f"{command} --rounds 1 --out mine")
    assert outcome.code == 2
    assert outcome.err.startswith("feddst: mine is not empty")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_picture_is_not_overwritten(feddst: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_text("a picture")
    outcome = feddst("data show --out mine.png")
    assert (outcome.code, outcome.err) == (2, "feddst: mine.png exists already\n")
    assert (tmp_path / "mine.png").read_text() == "a picture"
