"""A metric of which less is better, in everything that shows runs: under its own name, and never as accuracy."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.cli.frame import frame
from feddst.cli.run import describe
from feddst.cli.run_progress import RunProgress
from feddst.core.metric import Metric
from feddst.errors import OptionError
from feddst.export import export
from feddst.logs import TensorBoard
from feddst.report.content import content
from feddst.report.document import write_report
from feddst.report.figures import write_figures
from feddst.runtime import RunConfig
from feddst.runtime.loop import Silent
from feddst.runtime.metrics import best_under
from feddst.runtime.pace import Pace, progress_line
from feddst.runtime.storage import RunDirectory
from feddst.studies.comparison import CompareConfig, Comparison
from feddst.studies.reproduce.figures import draw_figures
from feddst.studies.reproduce.record import Point, Record, RecordedRow, RecordedRun, load_record, save_record
from feddst.studies.reproduce.table import markdown
from feddst.studies.tables import caption, headline, table

Pair = tuple[Tensor, Tensor]


def drawn(count: int, seed: int) -> Pair:
    """Inputs of six numbers, and targets that follow from them by a rule."""
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, :1] - 2 * inputs[:, 1:2] + 3).float()


DATA = drawn(120, 1), drawn(40, 2)
RMSE = Metric("rmse", higher_is_better=False)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))


def config(**options: Any) -> RunConfig:
    local = {"objective": "squared-error", "epochs": 1, "batch": 10, "lr": 0.05}
    data = {"clients": 4, "partition": "iid", "images_per_class": 10}
    shared: dict[str, Any] = {"rounds": 4, "eval_every": 2, "data": data, "local": local, "cohort": {"size": 2}}
    return feddst.configure(**{**shared, "engine": {"kind": "reference", "workers": 1}, **options})


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """FedAvg with a learning rate that learns nothing, and with one that does, two seeds each."""
    compared = CompareConfig(("fedavg:local.lr=0.000001", "fedavg"), (0, 1), base=config(method="fedavg"))
    return feddst.compare(compared, out=tmp_path_factory.mktemp("c") / "compared", model=net, data=DATA)


def test_tables_name_the_metric_and_say_which_way_is_better(comparison: Comparison) -> None:
    assert comparison.metric == RMSE
    assert caption(comparison).startswith("Best mean client rmse, mean ± standard deviation over 2 seeds")
    idle, learned = table(comparison)[1:]
    bests = [min(row.score for row in curve.rows if row.score is not None) for curve in comparison.of("fedavg")]
    assert learned[1].startswith(f"{sum(bests) / 2:.4g} ± ")
    assert float(learned[1].split()[0]) < float(idle[1].split()[0])
    said = headline(comparison)
    assert said.startswith(f"Over the whole runs fedavg reaches a mean client rmse of {learned[1].split()[0]}, ")
    assert "below fedavg:local.lr=0.000001 (better)" in said
    assert "points" not in said
    assert "%" not in said


def test_the_files_of_a_comparison(comparison: Comparison) -> None:
    assert (comparison.path / "rmse.png").is_file()
    assert not (comparison.path / "accuracy.png").exists()
    assert "![mean client rmse against upload](rmse.png)" in (comparison.path / "comparison.md").read_text()
    stored = json.loads((comparison.path / "comparison.json").read_text())["curves"][0]
    assert stored["metric"] == {"name": "rmse", "higher_is_better": False, "percent": False}
    assert stored["rmse"] == [row.score for row in comparison.curves[0].rows if row.score is not None]
    assert "accuracy" not in stored


def test_the_best_under_a_cap_is_the_least(comparison: Comparison) -> None:
    rows = comparison.of("fedavg")[0].rows
    scores = [row.score for row in rows if row.score is not None]
    assert scores[-1] < scores[0]
    assert best_under(rows, 1.0, "measured") == min(scores)
    first = next(row for row in rows if row.score is not None)
    assert best_under(rows, first.upload_bytes / 2**30, "measured") == first.score


def test_a_report_ranks_by_the_least(comparison: Comparison, tmp_path: Path) -> None:
    found = content([comparison.path])
    learned = found["table"]["lines"][2][3]
    assert found["headline"][0].startswith(
        f"Over the whole runs fedavg reaches a mean client rmse of {learned.split()[0]}"
    )
    assert found["table"]["caption"].startswith("Best mean client rmse under caps on the upload")
    assert found["metric"]["name"] == "rmse"
    assert found["entries"][1]["best"] == learned
    worst = [
        row.score_worst for curve in comparison.of("fedavg") for row in curve.rows if row.round == 2 and row.score_worst
    ]
    assert found["entries"][1]["worst"]["mean"][0] == float(f"{sum(worst) / 2:.5g}")
    crowd = found["entries"][1]["clients"][-1]
    assert sum(crowd["counts"]) == 8
    assert crowd["span"][0] <= crowd["mean"] <= crowd["span"][1]
    page = write_report(comparison.path, tmp_path / "report.html").read_text()
    assert "rmse for what it costs" in page
    assert "accuracy" not in page.lower().replace("data-accuracy", "")


def test_figures_are_called_by_the_metric(comparison: Comparison, tmp_path: Path) -> None:
    assert {path.name for path in write_figures(comparison.path, tmp_path, "svg")} >= {
        "rmse-upload.svg",
        "rmse-rounds.svg",
    }


def test_runs_of_two_metrics_are_not_compared(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"fedavg has rmse, fedavg:local.objective=huber has mae"):
        feddst.compare(
            CompareConfig(("fedavg", "fedavg:local.objective=huber"), base=config(method="fedavg")),
            out=tmp_path / "mixed",
            model=net,
            data=DATA,
        )
    assert not (tmp_path / "mixed").exists()
    other = feddst.run(config(method="fedavg", metric="mae"), model=net, data=DATA, out=tmp_path / "other")
    assert other.path is not None
    with pytest.raises(OptionError, match=r"RUN must be runs that are judged by the same metric"):
        content([comparison.path, other.path])


def test_a_comparison_with_a_loss_and_a_metric_of_ones_own(tmp_path: Path) -> None:
    def cubed(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().pow(3).mean()

    def far(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets).abs() > 1).double().mean(dim=1)

    far.higher_is_better = False  # type: ignore[attr-defined]
    compared = CompareConfig(("fedavg", "fedprox"), base=config(method="fedavg", rounds=2))
    made = feddst.compare(compared, out=tmp_path / "c", model=net, data=DATA, loss=cubed, metrics={"far": far})
    assert made.metric == Metric("far", higher_is_better=False)
    assert not made.reproducible
    last = made.curves[0].rows[-1]
    assert last.others["test_loss"] > 0
    again = feddst.compare(compared, out=tmp_path / "c", model=net, data=DATA, loss=cubed, metrics={"far": far})
    assert [curve.rows for curve in again.curves] == [curve.rows for curve in made.curves]


def test_the_live_view_and_lines(comparison: Comparison) -> None:
    rows = comparison.of("fedavg")[0].rows
    progress = RunProgress(config(), 1.0, metric=RMSE)
    assert frame(progress, 80)[1].text == "rmse      not evaluated yet"
    for row in rows:
        progress.add(row)
    last, best = rows[-1].score, min(row.score for row in rows if row.score is not None)
    assert last is not None
    assert frame(progress, 100)[1].text.startswith(f"rmse      {last:.4g}, best {best:.4g} in round 4")
    assert progress_line(Pace(config()), rows[-1], last).startswith(f"round 4: rmse {last:.4g}, upload ")


def test_a_run_ends_with_its_own_metric(comparison: Comparison) -> None:
    path = comparison.of("fedavg")[0].path
    summary = RunDirectory(path).finished()
    assert summary is not None
    said = describe(summary, config(), path).splitlines()[0]
    assert said.startswith(f"rmse      best {summary.best:.4g} (round 4), final {summary.final:.4g}, mean of the last")
    assert summary.best == min(row.score for row in comparison.of("fedavg")[0].rows if row.score is not None)


def test_logs_have_all_metrics_under_their_own_names(tmp_path: Path) -> None:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    done = feddst.run(config(method="fedavg"), model=net, data=DATA, out=tmp_path / "run", watcher=TensorBoard())
    events = accumulator.EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"rmse/rmse", "rmse/rmse_worst", "rmse/rmse_global", "mae/mae", "mae/mae_worst", "r2/r2_global"} <= tags
    assert not [tag for tag in tags if "accuracy" in tag]
    assert [one.value for one in events.Scalars("rmse/rmse")] == pytest.approx(
        [row.score for row in done.rows if row.score is not None]
    )


@pytest.mark.parametrize("format", ["safetensors", "sparse"])
def test_an_exported_model_is_loaded_again(tmp_path: Path, format: str) -> None:
    done = feddst.run(config(method="feddst", rounds=2), model=net, data=DATA, out=tmp_path / "run")
    made = export(tmp_path / "run", format, model=net, data=DATA)  # type: ignore[arg-type]
    there = DATA[1][0]
    assert torch.equal(feddst.load(made.path, model=net)(there), done.model(there))
    card = made.card.read_text()
    assert "\n- rmse\n" in card
    score = done.rows[-1].score
    assert score is not None
    assert f"| mean over clients, each on its own test examples | {score:.4g} |" in card
    assert "Less is better." in card
    assert "Other figures: mae " in card
    assert "For each input it gives 1 number." in card
    assert "classes" not in card.partition("## How it was made")[0]
    assert "accuracy" not in card.lower()
    assert "images" not in card.partition("## How it was made")[0]
    assert "outputs = model(inputs)" in card
    assert "data.dataset" not in card


def test_a_built_in_network_for_numbers_needs_no_model_when_it_is_loaded(tmp_path: Path) -> None:
    images = [torch.rand(n, 1, 14, 14, generator=torch.Generator().manual_seed(n)) for n in (20, 10)]
    data = tuple((image, image.mean(dim=(1, 2, 3))[:, None].repeat(1, 3)) for image in images)
    few = {"clients": 2, "partition": "iid", "images_per_class": 5}
    quick = config(method="fedavg", rounds=1, eval_every=1, data=few)
    done = feddst.run(quick, data=data)  # type: ignore[arg-type]
    made = export(done, out=tmp_path / "model.safetensors", data=data)  # type: ignore[arg-type]
    loaded = feddst.load(made.path)
    assert torch.equal(loaded(images[1]), done.model(images[1]))
    assert loaded(images[1]).shape == (10, 3)


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    class Twice(Silent):
        """Stops after the second round."""

        asked = 0

        def stop(self) -> bool:
            self.asked += 1
            return self.asked == 2

    whole = feddst.run(config(), model=net, data=DATA)
    feddst.run(config(), model=net, data=DATA, out=tmp_path / "run", watcher=Twice())
    rest = feddst.run(config(), model=net, data=DATA, out=tmp_path / "run", resume=True)
    assert [(row.score, row.others) for row in rest.rows] == [(row.score, row.others) for row in whole.rows]
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, rest.model.state_dict()[name])


def test_a_record_says_which_metric_it_has(tmp_path: Path) -> None:
    """Errors of 3, 2 and 2.5 under caps of 1, 2 and 3 GiB: the least so far is 2 from the second on."""

    def ran(name: str, seed: int, less: float) -> RecordedRun:
        points = [
            Point(i, score - less, score, score, i * 2**30, 0, 0, 0.0, RMSE) for i, score in enumerate((3, 2, 2.5), 1)
        ]
        return RecordedRun(name, seed, tuple(points), Path(f"{name}-seed{seed}"), "measured", 0.0, "rounds")

    rows = tuple(
        RecordedRow(name, name, None, {"method": name}, (ran(name, 0, less), ran(name, 1, less)))
        for name, less in (("fedavg", 0.0), ("feddst", 0.5))
    )
    made = Record(
        "study", "mine", "numbers", "", (), 2, (1.0, 2.5), "measured", rows, compared=(("feddst", "fedavg"),)
    )  # fmt: skip
    save_record(made, tmp_path)
    stored = json.loads((tmp_path / "record.json").read_text())["rows"][0]["runs"][0]
    assert stored["rmse"] == [3.0, 2.0, 2.5]
    assert stored["metric"] == {"name": "rmse", "higher_is_better": False, "percent": False}
    assert load_record(tmp_path) == made
    page = markdown(made)
    assert "Best mean client rmse under caps on the upload" in page
    assert "| fedavg |   3 ± 0 |   2 ± 0 |" in page
    assert "Differences on the same seeds, those below 0 in favour of the first, with 95 %" in page
    assert "−0.5 [−0.5, −0.5]" in page
    assert draw_figures(made, tmp_path) == ["rmse.png"]
