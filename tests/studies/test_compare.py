import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

from feddst.data import Dataset, federate
from feddst.errors import CheckpointError, FeddstError, ModelError, OptionError
from feddst.runtime import RunConfig, run
from feddst.runtime.loop import Silent
from feddst.runtime.storage import RunDirectory
from feddst.studies import CompareConfig, compare
from feddst.studies.compare import Turn, describe_data
from feddst.studies.comparison import compare_config, parse_entry

Small = Callable[..., RunConfig]


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4))


class Listener(Silent):
    """Hears the turns, and stops after a number of rounds of all runs together."""

    def __init__(self, rounds: int = 10**9) -> None:
        self.turns: list[tuple[str, int, str]] = []
        self.left = rounds

    def turn(self, turn: Turn) -> None:
        self.turns.append((turn.entry.label, turn.seed, turn.standing))

    def row(self, run: object, row: object) -> None:
        self.left -= 1

    def stop(self) -> bool:
        return self.left <= 0


@pytest.fixture
def config(small_config: Small) -> CompareConfig:
    methods = ("fedavgm", "feddst:sparsity.level=0.5")
    return CompareConfig(methods=methods, seeds=(0, 1), base=small_config(rounds=2))


def test_every_entry_runs_with_every_seed_as_it_would_alone(
    config: CompareConfig, small_data: Dataset, small_config: Small, tmp_path: Path
) -> None:
    comparison = compare(config, out=tmp_path / "here", model=network, data=small_data)
    assert comparison.finished
    runs = [(curve.label, curve.seed, curve.path.name) for curve in comparison.curves]
    assert runs == [
        ("fedavgm", 0, "fedavgm-seed0"),
        ("feddst:sparsity.level=0.5", 0, "feddst-sparsity.level=0.5-seed0"),
        ("fedavgm", 1, "fedavgm-seed1"),
        ("feddst:sparsity.level=0.5", 1, "feddst-sparsity.level=0.5-seed1"),
    ]
    alone = run(small_config(rounds=2, seed=1, sparsity__level=0.5), model=network, data=small_data)
    compared = [replace(row, seconds=0.0) for row in comparison.curves[3].rows]
    assert compared == [replace(row, seconds=0.0) for row in alone.rows]


def test_the_reports_hold_every_curve(config: CompareConfig, small_data: Dataset, tmp_path: Path) -> None:
    comparison = compare(config, out=tmp_path, model=network, data=small_data)
    title, heading, *rows = repr(comparison).splitlines()
    assert title == f"Comparison on arrays, 8 clients (classes), seeds 0, 1: finished, in {tmp_path}"
    assert heading.split() == ["method", "whole", "run", "MiB", "up", "MiB", "down"]
    assert [row.split()[0] for row in rows] == list(config.methods)
    assert all(label in comparison._repr_html_() for label in config.methods)
    assert len(comparison.plot().lines) == len(config.methods)
    plt.close("all")
    report = json.loads((tmp_path / "comparison.json").read_text())
    assert report["finished"] is True
    assert report["config"]["seeds"] == [0, 1]
    assert [curve["accuracy"] for curve in report["curves"]] == [
        [row.accuracy for row in curve.rows if row.accuracy is not None] for curve in comparison.curves
    ]
    assert "| fedavgm " in (tmp_path / "comparison.md").read_text()
    assert (tmp_path / "accuracy.png").is_file()


def test_finished_runs_are_skipped_and_the_others_resumed(
    config: CompareConfig, small_data: Dataset, tmp_path: Path
) -> None:
    whole = compare(config, out=tmp_path / "whole", model=network, data=small_data)
    out = tmp_path / "broken"
    first = compare(config, out=out, model=network, data=small_data, watcher=Listener(rounds=3))
    assert not first.finished
    assert [len(curve.rows) for curve in first.curves] == [2, 1]
    assert json.loads((out / "comparison.json").read_text())["finished"] is False
    watcher = Listener()
    second = compare(config, out=out, model=network, data=small_data, watcher=watcher)
    assert [standing for _, _, standing in watcher.turns] == ["finished", "resumed", "new", "new"]
    assert second.finished
    for broken, unbroken in zip(second.curves, whole.curves, strict=True):
        assert [row.accuracy for row in broken.rows] == [row.accuracy for row in unbroken.rows]


def test_a_stop_between_two_runs_is_heard(config: CompareConfig, small_data: Dataset, tmp_path: Path) -> None:
    stopped = compare(config, out=tmp_path, model=network, data=small_data, watcher=Listener(rounds=2))
    assert not stopped.finished
    assert [len(curve.rows) for curve in stopped.curves] == [2]
    assert [path.name for path in tmp_path.glob("*-seed*")] == ["fedavgm-seed0"]


def test_a_finished_comparison_needs_no_data(config: CompareConfig, small_data: Dataset, tmp_path: Path) -> None:
    first = compare(config, out=tmp_path, model=network, data=small_data)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    away = replace(config, base=replace(config.base, engine=replace(config.base.engine, workers=2)))
    second = compare(away, out=tmp_path)
    assert second.curves == first.curves
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.parent != tmp_path and path.is_file()}
    assert kept == {path: content for path, content in files.items() if path.parent != tmp_path}


def test_more_rounds_take_finished_runs_further_and_fewer_leave_them(
    config: CompareConfig, small_data: Dataset, small_config: Small, tmp_path: Path
) -> None:
    compare(config, out=tmp_path, model=network, data=small_data)
    watcher = Listener()
    longer = replace(config, base=small_config(rounds=3))
    further = compare(longer, out=tmp_path, model=network, data=small_data, watcher=watcher)
    assert {standing for _, _, standing in watcher.turns} == {"resumed"}
    assert [len(curve.rows) for curve in further.curves] == [3, 3, 3, 3]
    watcher = Listener()
    compare(config, out=tmp_path, model=network, data=small_data, watcher=watcher)
    assert {standing for _, _, standing in watcher.turns} == {"finished"}


def test_a_comparison_of_an_earlier_version_goes_on_with_the_engine_it_had(
    config: CompareConfig,
    small_data: Dataset,
    small_config: Small,
    tmp_path: Path,
    unseal_run: Callable[[Path], RunDirectory],
) -> None:
    torch_only = replace(config, base=small_config(rounds=2, engine__kind="reference"))
    compare(torch_only, out=tmp_path, model=network, data=small_data, watcher=Listener(rounds=3))
    curves = json.loads((tmp_path / "comparison.json").read_text())
    del curves["config"]["base"]["engine.kind"]
    (tmp_path / "comparison.json").write_text(json.dumps(curves))
    for stored in tmp_path.glob("*/config.toml"):
        unseal_run(stored.parent)
        stored.write_text(stored.read_text().replace('engine.kind = "reference"\n', ""))
    with pytest.raises(CheckpointError, match=r"engine\.kind was 'reference', now 'native'"):
        compare(config, out=tmp_path, model=network, data=small_data)
    assert compare(torch_only, out=tmp_path, model=network, data=small_data).finished


def test_another_method_may_join(config: CompareConfig, small_data: Dataset, tmp_path: Path) -> None:
    compare(config, out=tmp_path, model=network, data=small_data)
    watcher = Listener()
    more = replace(config, methods=(*config.methods, "fedprox"))
    compare(more, out=tmp_path, model=network, data=small_data, watcher=watcher)
    assert [standing for label, _, standing in watcher.turns if label == "fedprox"] == ["new", "new"]
    assert {standing for label, _, standing in watcher.turns if label != "fedprox"} == {"finished"}


def test_a_run_with_another_config_is_refused_before_any_work(
    config: CompareConfig, small_data: Dataset, small_config: Small, tmp_path: Path
) -> None:
    compare(replace(config, methods=("feddst",)), out=tmp_path, model=network, data=small_data)
    last = tmp_path / "fedavgm-seed1"
    RunDirectory(last).create(small_config(method="fedavgm", seed=1, local__lr=0.5))
    watcher = Listener()
    with pytest.raises(CheckpointError, match=r"fedavgm-seed1 was begun with another config: local\.lr was 0\.5"):
        compare(config, out=tmp_path, model=network, data=small_data, watcher=watcher)
    assert watcher.turns == []
    assert [path.name for path in last.iterdir()] == ["config.toml"]


def test_a_directory_of_something_else_is_refused(config: CompareConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="is not empty and holds no comparison"):
        compare(config, out=tmp_path)
    (tmp_path / "comparison.json").write_text('{"mine": 1}')
    with pytest.raises(CheckpointError, match="is damaged, or not a comparison's"):
        compare(config, out=tmp_path)
    assert (tmp_path / "comparison.json").read_text() == '{"mine": 1}'


def test_a_comparison_runs_on_a_federation(config: CompareConfig, small_data: Dataset, tmp_path: Path) -> None:
    federation = federate(config.base.data, 0, small_data)
    elsewhere = replace(config, seeds=(0,), base=replace(config.base, data=replace(config.base.data, clients=99)))
    comparison = compare(elsewhere, out=tmp_path, model=network, data=federation)
    assert comparison.finished
    assert RunDirectory(tmp_path / "fedavgm-seed0").stored_config().data.clients == 8


def test_a_model_with_nothing_to_prune_is_refused(small_config: Small, small_data: Dataset, tmp_path: Path) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)[:, :4] * self.scale

    config = CompareConfig(methods=("feddst",), base=small_config(rounds=1))
    with pytest.raises(ModelError, match="nothing to prune"):
        compare(config, out=tmp_path / "here", model=Scale, data=small_data)
    assert not (tmp_path / "here" / "feddst-seed0").exists()


def test_without_matplotlib_the_rest_is_written(
    config: CompareConfig,
    small_data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    comparison = compare(replace(config, seeds=(0,)), out=tmp_path, model=network, data=small_data)
    assert comparison.finished
    assert "accuracy.png was not drawn" in caplog.text
    assert not (tmp_path / "accuracy.png").exists()
    assert (tmp_path / "comparison.md").is_file()


def test_an_entry_is_a_method_with_options_of_its_own() -> None:
    entry = parse_entry("feddst:readjust.after-epoch=3:sparsity.distribution=er")
    assert entry.method == "feddst"
    assert entry.overrides == {"readjust.after_epoch": 3, "sparsity.distribution": "er"}
    assert entry.directory == "feddst-readjust.after-epoch=3-sparsity.distribution=er"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedst", "did you mean 'feddst'"),
        ("feddst:", "needs option=value"),
        ("feddst:readjust.alpah=1", "did you mean 'readjust.alpha'"),
        ("feddst:seed=3", "must be the same for all"),
        ("feddst:data.beta=1", "must be the same for all"),
        ("feddst:readjust.alpha=2", r"readjust.alpha must be in \[0, 1\], got 2.0"),
        ("fedavg:local.momentum=0.5", "is fixed at 0.0 by fedavg"),
    ],
)
def test_a_wrong_entry_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CompareConfig(methods=(text,)).check()


def test_entries_that_would_share_a_directory_are_refused() -> None:
    with pytest.raises(OptionError, match="twice"):
        CompareConfig(methods=("feddst", "feddst")).check()


def test_a_value_that_only_one_entry_cannot_have_is_found_before_any_work() -> None:
    config = CompareConfig(methods=("fedavgm", "feddst:readjust.after_epoch=11"))
    with pytest.raises(FeddstError, match=r"readjust.after_epoch must be at most local.epochs \(10\), got 11"):
        config.check()


def test_caps_end_the_runs_unless_something_else_is_asked_for() -> None:
    def ends(**values: object) -> tuple[int, float]:
        base = compare_config(values).base
        return base.rounds, base.cap_gib

    assert ends(caps=(0.1, 0.3, 0.2)) == (0, 0.3)
    assert ends(caps=(0.1,), rounds=7) == (7, 0.1)
    assert ends(caps=(0.1,), cap_gib=0.5) == (0, 0.5)
    assert ends() == (RunConfig().rounds, 0.0)


@pytest.mark.parametrize("name", ["method", "seed", "base", "base.rounds"])
def test_what_is_not_an_option_of_a_comparison_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{name}'"):
        compare_config({name: 1})


@pytest.mark.parametrize("divided", [False, True])
def test_titles_say_what_is_tested_on(small_config: Small, small_data: Dataset, divided: bool) -> None:
    config = small_config(data__held_out=40, data__augmentation=2).data
    federation = replace(federate(config, 0, small_data), description="")
    said = describe_data(config, federation if divided else small_data)
    how = "8 clients" if divided else "8 clients (classes)"
    assert said == f"arrays, {how}, 2 versions of each image, tested on 40 images held out"
    plain = small_config().data
    assert describe_data(plain, small_data) == "arrays, 8 clients (classes)"
    assert describe_data(plain, None) == "mnist, 8 clients (classes)"
