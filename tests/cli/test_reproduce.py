"""`feddst reproduce` from the outside."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feddst.cli import reproduce as command
from feddst.cli.interruption import Interruption
from feddst.runtime.presets import row_options
from feddst.studies.reproduce import config as reproduction
from feddst.studies.reproduce.progress import Overview

Call = Callable[..., Any]

SMALL = {
    "data.clients": 4,
    "data.images_per_class": 5,
    "cohort.size": 2,
    "local.epochs": 1,
    "eval_every": 1,
    "engine.workers": 1,
}
TARGETS = "table1, table2, table3, alpha, sparsity, schedule, compatibility"
ALONE = """
import importlib.abc, runpy, sys

class OnlyTorchAndNumpy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        asks = "" if frame is None else frame.f_globals.get("__name__", "")
        known = {"torch", "numpy", "feddst", *sys.stdlib_module_names}
        if asks.partition(".")[0] in ("feddst", "__main__") and name.partition(".")[0] not in known:
            raise ModuleNotFoundError(f"{name} is neither torch nor numpy", name=name)
        return None

sys.meta_path.insert(0, OnlyTorchAndNumpy())
runpy.run_module("feddst.studies.reproduce", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(autouse=True)
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that train in milliseconds, on what stands in for MNIST."""

    def shrunk(*words: Any) -> dict[str, Any]:
        return {**row_options(*words), **SMALL}

    monkeypatch.setattr(reproduction, "row_options", shrunk)


def test_it_ends_with_the_table_the_differences_and_the_files(feddst: Call, tmp_path: Path) -> None:
    words = "reproduce table1 --rows randommask,feddst --seeds 2 --rounds 2"
    outcome = feddst(words)
    assert outcome.code == 0
    assert outcome.err.splitlines()[0] == "table1 on MNIST, 4 clients (classes); writing to runs/table1-paper"
    assert "100.0 % done, 2 of 2 rows, 8 rounds; FedDST, round 2: accuracy" in outcome.err
    lines = outcome.out.splitlines()
    assert lines[1].startswith("Partial: 12 of 16 runs not finished. MNIST, 4 clients (classes); the paper's text.")
    assert any(line.startswith("FedDST  ") and line.count("σ)") == 4 for line in lines)
    assert any(line.startswith("FedDST − RandomMask at 4 GiB: ") for line in lines)
    assert lines[-3:] == [f"runs/table1-paper/{name}" for name in ("record.json", "table.md", "accuracy.png")]
    record = json.loads((tmp_path / "runs/table1-paper/record.json").read_text())
    assert record["command"] == "feddst reproduce table1 --seeds 2 --rows randommask,feddst --rounds 2"
    again = feddst(words)
    assert (again.code, again.out) == (0, outcome.out)


def test_a_figure_ends_with_what_its_claim_is_about(feddst: Call, tmp_path: Path) -> None:
    outcome = feddst("reproduce compatibility --on mnist --rows fedprox,feddst+fedprox --seeds 1 --rounds 1")
    assert outcome.code == 0
    assert outcome.err.splitlines()[0].startswith("compatibility on MNIST, 4 clients (classes); writing to runs/compat")
    assert "FedDST+FedProx − FedProx at 4 GiB: " in outcome.out
    assert outcome.out.splitlines()[-1] == "runs/compatibility-paper/accuracy.png"


def test_when_the_time_is_over_the_exit_code_says_so_and_the_same_command_goes_on(feddst: Call) -> None:
    first = feddst("reproduce table1 --rows feddst --seeds 1 --rounds 2 --minutes 1e-9")
    assert first.code == 3
    words = first.err.splitlines()[-1].split()
    rest = words[words.index("reproduce") :]
    assert rest[-2:] == ["--out", "runs/table1-paper"]
    rest[rest.index("1e-09")] = "5"
    assert feddst(*rest).code == 0


def test_an_interrupted_reproduction_goes_on(feddst: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = command.OverallReporter.show

    def show(self: command.OverallReporter, overview: Overview) -> None:
        usual(self, overview)
        if overview.round == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command.OverallReporter, "show", show)
    words = "reproduce table1 --rows feddst --seeds 1 --rounds 3 --out here"
    outcome = feddst(words)
    assert outcome.code == 130
    assert "finishing this round; press Ctrl-C again to stop at once" in outcome.err
    monkeypatch.setattr(command.OverallReporter, "show", usual)
    again = feddst(words)
    assert again.code == 0
    assert "round 3" in again.err
    assert "round 2:" not in again.err


def test_a_terminal_gets_one_bar_for_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with command.OverallReporter(Interruption()) as reporter:
        reporter.show(Overview(0.25, 2, 8, 900, "FedDST", 120, 0.934, 61.0))
    assert "25.0 %, row 3/8" in terminal.getvalue()
    assert "FedDST, round 120: accuracy 93.4 %; about 1 min 01 s left" in terminal.getvalue()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("reproduce", f"reproduce needs a target: one of {TARGETS}"),
        ("reproduce tabel1", f"target must be one of {TARGETS}, got 'tabel1'"),
        ("reproduce table1 table2", "unexpected argument 'table2'"),
        ("reproduce table1 --reading mine", "reading must be one of paper, published, got 'mine'"),
        ("reproduce table1 --seeds 0", "seeds must be in [1, 1000], got 0"),
        ("reproduce table1 --rows fedst", "got 'fedst'; did you mean 'feddst'?"),
        ("reproduce table2 --on cifar10", "on must be auto for table2, got 'cifar10'"),
        ("reproduce alpha --on cifar100", "on must be one of mnist, cifar10"),
        ("reproduce table1 --local.lr 0.1", "unknown option --local.lr"),
        ("reproduce table1 --engine.device tpu", "engine.device must be cpu, cuda or cuda:N, got 'tpu'"),
        ("reproduce table2 --data.dataset folder", "data.root must name an image directory or tar archive"),
        ("reproduce table2 --data.dataset folder --data.root missing", "missing"),
        ("reproduce table1 --minutes -1", "minutes must be at least 0, got -1.0"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(feddst: Call, tmp_path: Path, line: str, message: str) -> None:
    outcome = feddst(line)
    assert outcome.code == 2
    complaints = [text for text in outcome.err.splitlines() if text.startswith("feddst: ")]
    assert len(complaints) == 1
    assert message in complaints[0]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_other_things_in_it_is_left_alone(feddst: Call, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    outcome = feddst("reproduce table1 --out mine")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("feddst: mine is not empty and holds no reproduction")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_the_help_has_every_option(feddst: Call) -> None:
    outcome = feddst("reproduce --help")
    assert outcome.code == 0
    for name in ("out", "reading", "seeds", "rows", "on", "minutes", "at_once", "data.root", "engine.kind"):
        assert f"--{name} " in outcome.out


def test_as_a_module_it_needs_torch_and_numpy_alone(tmp_path: Path) -> None:
    words = ["table1", "--rows", "feddst", "--seeds", "1", "--rounds", "1", "--out", str(tmp_path / "here")]
    words += ["--engine.workers", "1"]
    done = subprocess.run([sys.executable, "-c", ALONE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "100.0 % done, 1 of 1 row, 1 rounds; FedDST, round 1: accuracy" in done.stderr
    assert "figures were not drawn, because matplotlib is missing" in done.stderr
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"feddst-seed0", "record.json", "table.md"}
