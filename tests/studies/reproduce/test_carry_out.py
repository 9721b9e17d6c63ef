"""Whole reproductions on made-up images."""

import json
import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feddst.data import Dataset
from feddst.errors import CheckpointError, TrainingError
from feddst.options import updated
from feddst.runtime import run
from feddst.runtime.lock import LOCK
from feddst.runtime.loop import Silent
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.studies.reproduce import Record, ReproduceConfig, load_record, reproduce
from feddst.studies.reproduce.plan import plan
from feddst.studies.reproduce.playing import divided
from feddst.studies.reproduce.progress import Overview

from .conftest import SMALL, Listener

TWO_ROWS = {"rows": ("fedavgm", "feddst"), "seeds": 2, "rounds": 4, "engine.workers": 1}


def made(target: str = "table1", **values: Any) -> ReproduceConfig:
    return updated(ReproduceConfig(target), {**TWO_ROWS, **{k.replace("__", "."): v for k, v in values.items()}})


def play(config: ReproduceConfig, out: Path, data: Dataset, rounds: int = 10**9) -> Record:
    return reproduce(config, out=out, data=data, changes=SMALL, overseer=Listener(rounds))


def models(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(out.glob("*/checkpoint.safetensors"))}


def timeless(record: Record) -> Record:
    rows = tuple(
        replace(
            row,
            runs=tuple(replace(run, rows=tuple(replace(point, seconds=0.0) for point in run.rows)) for run in row.runs),
        )
        for row in record.rows
    )
    return replace(record, rows=rows, made=tuple(replace(maker, seconds=0.0) for maker in record.made))


def test_seeds_side_by_side_are_as_they_would_be_alone(small_mnist: Dataset, tmp_path: Path) -> None:
    config = made()
    record = play(config, tmp_path / "all", small_mnist)
    assert sorted(models(tmp_path / "all")) == ["fedavgm-seed0", "fedavgm-seed1", "feddst-seed0", "feddst-seed1"]
    row = next(row for row in config.all_rows() if row.name == "feddst")
    alone = run(config.run_config(row, 1, SMALL), data=small_mnist, out=tmp_path / "alone", watcher=Silent())
    assert (tmp_path / "alone/checkpoint.safetensors").read_bytes() == models(tmp_path / "all")["feddst-seed1"]
    found = record.row("feddst")
    assert found is not None
    assert [(p.round, p.score) for p in found.runs[1].rows] == [
        (row.round, row.accuracy) for row in alone.rows if row.accuracy is not None
    ]


def test_a_figure_with_a_low_cap_goes_on_to_a_higher_one(small_mnist: Dataset, tmp_path: Path) -> None:
    """As if the higher one had been asked for at once."""
    options: dict[str, Any] = {"target": "alpha", "rounds": 0, "rows": ("alpha=0.01", "alpha=0.05")}
    low = play(made(**options, caps=(0.00025,)), tmp_path / "steps", small_mnist)
    assert low.caps == (0.00025,)
    assert {run.stopped_by for row in low.rows for run in row.runs} == {"cap"}
    steps = play(made(**options, caps=(0.00025, 0.0005)), tmp_path / "steps", small_mnist)
    once = play(made(**options, caps=(0.00025, 0.0005)), tmp_path / "once", small_mnist)
    assert timeless(steps) == timeless(once)
    rows = [row for row in once.rows if row.runs]
    assert [row.name for row in rows] == ["alpha=0.01", "alpha=0.05"]
    for row in rows:
        assert row.best(0.00025).keys() == row.best(0.0005).keys() == {0, 1}
        assert all(0.00025 < run.rows[-1].upload_bits / (8 * 2**30) <= 0.0005 for run in row.runs)


def test_the_compatibility_figure_has_its_rows_curves_and_differences(small_mnist: Dataset, tmp_path: Path) -> None:
    record = play(made("compatibility", rows=(), rounds=2), tmp_path, small_mnist)
    assert load_record(tmp_path) == record
    assert [row.title for row in record.rows] == [
        "FedAvgM",
        "FedProx (μ = 1)",
        "FedDST",
        "FedDST + FedProx (μ = 1)",
        "RandomMask + FedProx (μ = 1)",
    ]
    assert all(len(run.rows) == 1 for row in record.rows for run in row.runs)  # evaluated every 2 of 2 rounds
    page = (tmp_path / "table.md").read_text()
    assert "| FedDST+FedProx − FedProx  " in page
    assert "| FedDST+FedProx − RandomMask+FedProx | " in page
    assert "![accuracy](accuracy.png)" in page
    assert (tmp_path / "accuracy.png").is_file()


def test_stopped_and_gone_on_is_the_same_as_unbroken(small_mnist: Dataset, tmp_path: Path) -> None:
    whole = play(made(), tmp_path / "whole", small_mnist)
    assert whole.complete(["fedavgm", "feddst"], range(2))
    broken = tmp_path / "broken"
    first = play(made(), broken, small_mnist, rounds=3)  # the second round of fedavgm's seeds is played out
    assert [(row.name, [len(run.rows) for run in row.runs]) for row in first.rows if row.runs] == [("fedavgm", [1, 1])]
    assert not first.complete(["fedavgm"], range(1))
    assert load_record(broken) == first
    assert "Partial: 16 of 16 runs not finished." in (broken / "table.md").read_text()
    second = play(made(), broken, small_mnist, rounds=6)
    assert second.complete(["fedavgm"], range(2))
    last = play(made(), broken, small_mnist)
    assert timeless(last) == timeless(whole)
    assert [maker.seconds for maker in last.made] > [maker.seconds for maker in second.made] > [0.0]
    assert models(broken) == models(tmp_path / "whole")


def test_no_time_at_all_still_leaves_something_to_go_on_with(small_mnist: Dataset, tmp_path: Path) -> None:
    first = play(made(minutes=1e-9), tmp_path, small_mnist)
    assert not any(row.runs for row in first.rows)
    assert play(made(), tmp_path, small_mnist).complete(["fedavgm", "feddst"], range(2))


def test_what_is_finished_is_not_played_again_and_needs_no_data(small_mnist: Dataset, tmp_path: Path) -> None:
    first = play(made(), tmp_path, small_mnist)
    listener = Listener()
    again = reproduce(made(), out=tmp_path, data=small_mnist, changes=SMALL, overseer=listener)
    assert again == first
    assert listener.seen == []


def test_rows_at_once_are_as_one_after_another(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(), tmp_path / "one", small_mnist)
    listener = Listener()
    reproduce(made(at_once=3), out=tmp_path / "three", data=small_mnist, changes=SMALL, overseer=listener)
    assert models(tmp_path / "one") == models(tmp_path / "three")
    assert [view.done for view in listener.seen] == sorted(view.done for view in listener.seen)
    assert len(listener.seen) == 16  # 2 rows, 2 seeds, 4 rounds
    assert (listener.seen[-1].done, listener.seen[-1].rows_done, listener.seen[-1].rounds) == (1.0, 2, 16)


def test_rows_with_the_smallest_updates_are_known_to_be_the_longest(tmp_path: Path) -> None:
    rows = plan(updated(ReproduceConfig("table1"), {"seeds": 1}), tmp_path, {})
    bits = {row.row.name: row.bits_a_weight for row in rows}
    assert (bits["fedavgm"], bits["fedavgm-bfloat16"]) == (32, 16)
    assert bits["feddst"] == bits["randommask"] == pytest.approx(6.4)  # of 32, a fifth


@pytest.mark.parametrize(
    ("at_once", "parts"),
    [
        (1, ["feddst 0123", "fedavgm 0123"]),
        (2, ["feddst 0123", "fedavgm 0123"]),
        (3, ["feddst 02", "feddst 13", "fedavgm 0123"]),
        (5, ["feddst 03", "feddst 1", "feddst 2", "fedavgm 02", "fedavgm 13"]),
        (99, [f"{name} {seed}" for name in ("feddst", "fedavgm") for seed in range(4)]),
    ],
)
def test_more_processes_than_rows_divide_their_seeds(at_once: int, parts: list[str], tmp_path: Path) -> None:
    """FedDST, with the smaller updates, has more rounds to play: it comes first, and has more processes."""
    rows = [row for row in plan(made(seeds=4), tmp_path, {}) if row.unfinished]
    found = divided(rows, at_once)
    assert [f"{part.row.name} {''.join(str(run.seed) for run in part.unfinished)}" for part in found] == parts


def test_the_share_done_counts_all_runs(small_mnist: Dataset, tmp_path: Path) -> None:
    listener = Listener()
    reproduce(made(), out=tmp_path, data=small_mnist, changes=SMALL, overseer=listener)
    assert [view.done for view in listener.seen] == [pytest.approx(i / 16) for i in range(1, 17)]
    assert [view.rows_done for view in listener.seen] == [0] * 7 + [1] * 8 + [2]
    assert listener.seen[0].line().startswith("6.2 % done, 0 of 2 rows, 1 rounds; FedAvgM, round 1: accuracy –; about")
    assert listener.seen[-1].left == 0


def test_later_calls_add_rows_seeds_and_rounds(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(seeds=1, rows=("feddst",), rounds=2), tmp_path, small_mnist)
    before = RunDirectory(tmp_path / "feddst-seed0").rows()
    record = play(made(rows=("randommask",), rounds=2), tmp_path, small_mnist)
    assert {row.name: len(row.runs) for row in record.rows if row.runs} == {"randommask": 2, "feddst": 1}
    assert record.seeds == 2
    longer = play(made(rows=("feddst",)), tmp_path, small_mnist)
    assert {row.name: [run.rows[-1].round for run in row.runs] for row in longer.rows if row.runs} == {
        "randommask": [2, 2],
        "feddst": [4, 4],
    }
    assert RunDirectory(tmp_path / "feddst-seed0").rows()[:2] == before


def test_every_row_of_table_three_runs_on_a_hundred_classes(hundred_classes: Dataset, tmp_path: Path) -> None:
    config = made("table3", rows=(), seeds=1, rounds=2)
    few: dict[str, Any] = {"data.clients": 12, "local.epochs": 1, "local.batch": 50}
    few |= {"prunefl.layer_times": "flops", "prunefl.initial_rounds": 2}
    record = reproduce(config, out=tmp_path, data=hundred_classes, changes={**SMALL, **few}, overseer=Listener())
    assert record.missing == 0
    assert len(record.rows) == 8
    assert all(row.config["data.partition"] == "dirichlet" for row in record.rows)
    page = (tmp_path / "table.md").read_text()
    assert "Table 3 of the paper" in page
    assert "| 9.14 ± 0.47 |" in page


def test_the_published_reading_runs_too(small_mnist: Dataset, tmp_path: Path) -> None:
    record = play(made(reading="published", seeds=1, rounds=2), tmp_path, small_mnist)
    assert [row.config["model.head"] for row in record.rows if row.runs] == ["softmax", "softmax"]
    assert record.accounting == "published"


def test_a_sweep_has_its_figure(small_mnist: Dataset, tmp_path: Path) -> None:
    config = made("alpha", rows=(), seeds=1, rounds=2)
    small = {name: value for name, value in SMALL.items() if name != "readjust.alpha"}
    record = reproduce(config, out=tmp_path, data=small_mnist, changes=small, overseer=Listener())
    assert [row.value for row in record.rows] == [0.001, 0.005, 0.01, 0.05, 0.1]
    assert [row.config["readjust.alpha"] for row in record.rows] == [0.001, 0.005, 0.01, 0.05, 0.1]
    assert (tmp_path / "sweep.png").is_file()
    assert "| α = 0.001 − α = 0.05" in (tmp_path / "table.md").read_text()


def test_without_matplotlib_there_are_no_figures(
    small_mnist: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    play(made(seeds=1, rounds=1, rows=("fedavgm",)), tmp_path, small_mnist)
    assert not (tmp_path / "accuracy.png").exists()
    assert "accuracy.png" not in (tmp_path / "table.md").read_text()
    assert [record.getMessage() for record in caplog.records] == [
        "figures were not drawn, because matplotlib is missing: pip install 'feddst[report]'"
    ]


def test_the_record_holds_how_it_was_made(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(seeds=1, rounds=1), tmp_path, small_mnist)
    content = json.loads((tmp_path / "record.json").read_text())
    [maker] = content["made"]
    assert maker["commit"]
    assert "cores" in maker["device"]
    assert content["data"].startswith("made-up in place of MNIST, 400 clients (classes), with data.clients=8, data.")
    assert content["command"] == ""  # no command line gives these data
    assert content["rows"][0]["config"]["local.epochs"] == 2


def test_the_record_holds_every_command_that_has_made_some_of_it(tmp_path: Path) -> None:
    def called(*rows: str) -> str:
        config = updated(ReproduceConfig("table1"), {"rows": rows, "seeds": 1, "rounds": 1})
        return reproduce(config, out=tmp_path, overseer=Listener()).command

    first = "feddst reproduce table1 --seeds 1 --rows fedavgm --rounds 1"
    both = f"{first}; feddst reproduce table1 --seeds 1 --rows randommask --rounds 1"
    assert [called("fedavgm"), called("randommask"), called("fedavgm", "randommask")] == [first, both, both]


def test_other_peoples_directories_are_left_alone(small_mnist: Dataset, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="is not empty and holds no reproduction"):
        play(made(), tmp_path, small_mnist)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_record_without_its_runs_is_not_written_over(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(rounds=1, rows=("feddst",)), tmp_path / "made", small_mnist)
    (tmp_path / "alone").mkdir()
    copied = tmp_path / "alone/record.json"
    copied.write_bytes((tmp_path / "made/record.json").read_bytes())
    with pytest.raises(CheckpointError, match="a record without its runs, feddst-seed0 for one"):
        play(made(rounds=1, rows=("feddst",)), tmp_path / "alone", small_mnist)
    assert copied.read_bytes() == (tmp_path / "made/record.json").read_bytes()


def test_runs_with_other_options_are_not_gone_on_with(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(seeds=1, rounds=1), tmp_path, small_mnist)
    with pytest.raises(CheckpointError, match=r"fedavgm-seed0 was begun with another config: engine\.kind was"):
        play(made(seeds=1, engine__kind="reference"), tmp_path, small_mnist)
    with pytest.raises(CheckpointError, match=r"holds another reproduction: .*local\.epochs=2.*local\.epochs=3"):
        reproduce(made(), out=tmp_path, data=small_mnist, changes={**SMALL, "local.epochs": 3}, overseer=Listener())


def test_a_row_that_cannot_go_on_does_not_stop_the_others(
    small_mnist: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Run.close_round

    def diverge(self: Run) -> bool:
        if self.config.method == "fedavgm":
            raise TrainingError("client 3 diverged")
        return usual(self)

    monkeypatch.setattr(Run, "close_round", diverge)
    with pytest.raises(TrainingError, match=r"^FedAvgM: fedavgm, seed 0: client 3 diverged$"):
        play(made(), tmp_path, small_mnist)
    assert load_record(tmp_path).complete(["feddst"], range(2))


def test_a_process_that_is_killed_leaves_a_record_and_a_clear_word(small_mnist: Dataset, tmp_path: Path) -> None:
    class Killer(Listener):
        def show(self, overview: Overview) -> None:
            for child in multiprocessing.active_children()[:1]:
                child.kill()

    with pytest.raises(TrainingError, match="a process was ended from outside"):
        reproduce(made(at_once=2, rounds=3000), out=tmp_path, data=small_mnist, changes=SMALL, overseer=Killer())
    assert any(row.runs for row in load_record(tmp_path).rows)
    assert (tmp_path / "table.md").is_file()


def test_seeds_that_are_not_asked_for_are_not_played(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(rows=("fedavgm",)), tmp_path, small_mnist, rounds=3)
    before = len(RunDirectory(tmp_path / "fedavgm-seed1").rows())
    record = play(made(rows=("fedavgm",), seeds=1), tmp_path, small_mnist)
    assert len(RunDirectory(tmp_path / "fedavgm-seed0").rows()) == 4
    assert len(RunDirectory(tmp_path / "fedavgm-seed1").rows()) == before < 4
    assert record.complete(["fedavgm"], range(1))


def test_what_goes_wrong_in_a_process_of_its_own_is_told(small_mnist: Dataset, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"^FedDST: feddst, seed 0: round 1: 3 of the 3 clients that answered"):
        reproduce(made(at_once=2), out=tmp_path, data=small_mnist, changes={**SMALL, "local.lr": 1e20})


def test_damage_that_concerns_a_process_stops_all_rows(small_mnist: Dataset, tmp_path: Path) -> None:
    play(made(rounds=1), tmp_path, small_mnist)
    for checkpoint in RunDirectory(tmp_path / "fedavgm-seed0").checkpoints():
        checkpoint.write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="is damaged"):
        play(made(at_once=2, rounds=3000), tmp_path, small_mnist)
    assert len(RunDirectory(tmp_path / "feddst-seed0").rows()) < 3000


def test_nothing_is_said_of_the_time_left_before_something_is_done(small_mnist: Dataset, tmp_path: Path) -> None:
    listener = Listener(rounds=3)
    reproduce(made(rounds=400), out=tmp_path, data=small_mnist, changes=SMALL, overseer=listener)
    assert [view.left for view in listener.seen] == [None] * len(listener.seen)
    assert listener.seen[0].line().endswith("accuracy –")


@pytest.mark.parametrize("at_once", [1, 2])
def test_others_are_kept_off_its_directory_and_its_runs(small_mnist: Dataset, tmp_path: Path, at_once: int) -> None:
    config = made(at_once=at_once, rounds=3000, rows=("feddst",))
    row = next(row for row in config.all_rows() if row.name == "feddst")
    one, place = config.run_config(row, 0, SMALL), tmp_path / "feddst-seed0"
    refused: list[str] = []

    class Intruder(Listener):
        def show(self, overview: Overview) -> None:
            if refused or not RunDirectory(place).metrics.is_file():
                return
            self.rounds = 0
            with pytest.raises(CheckpointError) as caught:
                play(config, tmp_path, small_mnist)
            refused.append(str(caught.value))
            with pytest.raises(CheckpointError) as caught:
                run(one, data=small_mnist, out=place, resume=True, watcher=Silent())
            refused.append(str(caught.value))

    reproduce(config, out=tmp_path, data=small_mnist, changes=SMALL, overseer=Intruder())
    assert [line.partition(" by process ")[0] for line in refused] == [
        f"{tmp_path} is being written to",
        f"{place} is being written to",
    ]
    assert not list(tmp_path.rglob(LOCK))
