"""Whole runs on a small federation: learning, stopping, resuming bit for bit, and failing without loss."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import feddst
from feddst.data import Dataset, Federation, federate
from feddst.engines import ReferenceEngine, Sink, make_engine
from feddst.errors import CheckpointError, ModelError, OptionError, TrainingError
from feddst.methods import METHODS
from feddst.models import make_module
from feddst.options import updated
from feddst.runtime import Result, RunConfig, run
from feddst.runtime.details import Detail, write_detail
from feddst.runtime.loop import Silent, play
from feddst.runtime.metrics import GIB, Row
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory
from feddst.wire import ClientTask

Configure = Callable[..., RunConfig]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


class StopAfter(Silent):
    """Ends a run early, as Ctrl-C does."""

    def __init__(self, round: int) -> None:
        self.last, self.seen = round, 0

    def row(self, run: Run, row: Row) -> None:
        self.seen = row.round

    def stop(self) -> bool:
        return self.seen >= self.last


class Failing(Silent):
    """Breaks off a run after its first round, as a kill does."""

    def row(self, run: Run, row: Row) -> None:
        raise ZeroDivisionError


def untimed(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, seconds=0.0) for row in rows]


def assert_same(one: Result, two: Result) -> None:
    assert untimed(one.rows) == untimed(two.rows)
    first, second = one.model.state_dict(), two.model.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(mask, two.masks[name]) for name, mask in one.masks.items())


@pytest.mark.parametrize("method", [*METHODS, *CROSSED])
def test_every_method_learns(method: str, small_config: Configure, small_data: Dataset) -> None:
    own: dict[str, dict[str, Any]] = {
        "prunefl": {"prunefl__layer_times": "flops", "prunefl__initial_rounds": 0},
        "sign-sgd": {"sign__lr": 0.03},
        "feddst+fedadagrad": {"adaptive__lr": 0.05},
    }
    result = run(
        small_config(method=method, rounds=12, local__lr=0.05, **own.get(method, {})), model=network, data=small_data
    )
    assert result.finished
    assert max(result.summary.best, result.summary.final_personal or 0.0) > 0.6  # four classes: chance is 0.25
    before = [0] if method in ("snip", "grasp", "prunefl") else []
    assert [row.round for row in result.rows] == [*before, *range(1, 13)]


@pytest.mark.parametrize(
    "method", [name for name in (*METHODS, *CROSSED) if name.startswith(("randommask", "feddst", "fedavg"))]
)
def test_masks_keep_their_budgets_and_move_with_feddst_alone(
    method: str, small_config: Configure, small_data: Dataset
) -> None:
    result = run(small_config(method=method), model=network, data=small_data)
    sparse = not method.startswith("fedavg")
    assert result.rows[-1].density == pytest.approx(0.2 if sparse else 1.0, abs=0.01)
    assert all(row.entered == row.left for row in result.rows)
    moved = any(row.entered for row in result.rows)
    assert moved == method.startswith("feddst")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavgm-server", {}),
        ("feddst", {"proximal__mu": 1.0}),
        ("feddst", {"wire__values": "top8", "wire__feedback": True}),
    ],
    ids=["fedavgm-server", "proximal", "feedback"],
)
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_resumed_run_is_bit_for_bit_the_unbroken_one(
    method: str, options: dict[str, Any], stop: int, tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    config = small_config(method=method, cohort__stragglers=0.5, accounting="published", **options)
    whole = run(config, model=network, data=small_data, out=tmp_path / "whole")
    part = run(config, model=network, data=small_data, out=tmp_path / "part", watcher=StopAfter(stop))
    assert not part.finished
    assert len(part.rows) == stop
    rest = run(config, model=network, data=small_data, out=tmp_path / "part", resume=True)
    assert_same(whole, rest)
    files = [RunDirectory(tmp_path / name) for name in ("whole", "part")]
    assert files[0].checkpoint.read_bytes() == files[1].checkpoint.read_bytes()
    assert untimed(files[0].rows()) == untimed(files[1].rows())
    assert files[0].details_file.read_bytes() == files[1].details_file.read_bytes()


def test_a_module_whose_weights_nobody_seeded_can_be_resumed(
    tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    """The first checkpoint is written before the first round, so the second module's own weights do not matter."""
    first, second = network(), network()
    whole = run(small_config(), model=first, data=small_data)
    config = small_config(checkpoint_every=100)
    files = RunDirectory(tmp_path / "a")
    with pytest.raises(ZeroDivisionError):
        run(config, model=first, data=small_data, out=files.path, watcher=Failing())
    again = run(config, model=second, data=small_data, out=files.path, resume=True)
    assert_same(whole, again)


def test_rows_after_the_last_checkpoint_are_made_again(
    tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    """A killed run has rows that no checkpoint covers, and maybe half a row."""
    config = small_config(checkpoint_every=4)
    whole = run(config, model=network, data=small_data, out=tmp_path / "whole")
    run(config, model=network, data=small_data, out=tmp_path / "a", watcher=StopAfter(4))
    files = RunDirectory(tmp_path / "a")
    with files.metrics.open("a") as metrics:
        metrics.write(json.dumps({**files.rows()[-1].as_dict(), "round": 5, "loss": 99.0}) + '\n{"round": 6, "acc')
    with files.details_file.open("a") as details:
        details.write(write_detail(Detail(round=5, clients=(1,))) + '{"round":6,"lay')
    assert_same(whole, run(config, model=network, data=small_data, out=tmp_path / "a", resume=True))
    assert untimed(files.rows()) == untimed(whole.rows)
    assert files.details_file.read_bytes() == RunDirectory(tmp_path / "whole").details_file.read_bytes()


@pytest.mark.parametrize("first", [4, 5])
def test_a_run_taken_further_is_the_one_that_was_longer_from_the_start(
    first: int, tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    """Round 5 is evaluated only because it is the last, and so not in the end."""
    whole = run(small_config(accounting="published"), model=network, data=small_data, out=tmp_path / "whole")
    short = run(small_config(rounds=first, accounting="published"), model=network, data=small_data, out=tmp_path / "a")
    assert short.rows[-1].accuracy is not None
    config = small_config(accounting="published")
    assert_same(whole, run(config, model=network, data=small_data, out=tmp_path / "a", resume=True))
    assert RunDirectory(tmp_path / "a").stored_config().rounds == 6
    assert RunDirectory(tmp_path / "a").details() == RunDirectory(tmp_path / "whole").details()


def test_a_run_whose_rows_are_gone_is_not_resumed(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    run(small_config(), model=network, data=small_data, out=tmp_path / "a", watcher=StopAfter(3))
    files = RunDirectory(tmp_path / "a")
    files.metrics.unlink()
    with pytest.raises(CheckpointError, match="does not have every round up to the checkpoint's, 3"):
        run(small_config(), model=network, data=small_data, out=tmp_path / "a", resume=True)


def test_the_order_of_results_does_not_matter_even_when_a_client_has_two_tasks(
    small_config: Configure, small_data: Dataset
) -> None:
    class Backwards(ReferenceEngine):
        def run(self, tasks: Sequence[ClientTask], sink: Sink) -> None:
            for index in reversed(range(len(tasks))):
                sink.result(index, self.answer(tasks[index]))

    config = small_config(
        method="feddst",
        proximal__mu=1.0,
        cohort__sampling="with-replacement",
        cohort__size=8,
        cohort__stragglers=0.5,
        accounting="published",
    )
    played = []
    for kind in (ReferenceEngine, Backwards):
        one = Run(config, federate(config.data, 0, small_data), make_module(network, 0))
        play([one], kind(network(), small_data, torch.device("cpu")), Silent())
        played.append(untimed(one.rows))
    assert played[0] == played[1]


def test_a_finished_run_stays_as_it_is(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    first = run(small_config(), model=network, data=small_data, out=tmp_path / "a")
    again = run(small_config(), model=network, data=small_data, out=tmp_path / "a", resume=True)
    assert again.finished
    assert first.rows == again.rows
    assert first.summary == again.summary == RunDirectory(tmp_path / "a").finished()


def test_resuming_with_another_config_model_or_data_is_refused(
    tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    out = tmp_path / "a"
    run(small_config(), model=network, data=small_data, out=out, watcher=StopAfter(2))
    kept = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(CheckpointError, match="seed was 0, now 1"):
        run(small_config(seed=1), model=network, data=small_data, out=out, resume=True)
    with pytest.raises(CheckpointError, match="another model or other data"):
        run(small_config(), model=nn.Sequential(nn.Flatten(), nn.Linear(36, 4)), data=small_data, out=out, resume=True)
    with pytest.raises(CheckpointError, match="is not empty"):
        run(small_config(), model=network, data=small_data, out=out)
    with pytest.raises(CheckpointError, match="resume needs `out`"):
        run(small_config(), model=network, data=small_data, resume=True)
    assert {path: path.read_bytes() for path in out.iterdir()} == kept


def test_worker_processes_change_nothing(small_config: Configure, small_data: Dataset) -> None:
    module = make_module(network, 0)
    one = run(small_config(rounds=3), model=module, data=small_data)
    two = run(small_config(rounds=3, engine__workers=2), model=module, data=small_data)
    assert_same(one, two)


def test_runs_in_lockstep_are_the_runs_alone(small_config: Configure, small_data: Dataset) -> None:
    configs = [
        small_config(method=method, seed=seed, rounds=3 + seed) for method in ("feddst", "fedavgm") for seed in (0, 1)
    ]
    alone = [run(config, model=network, data=small_data) for config in configs]
    runs = [
        Run(config, federate(config.data, config.seed, small_data), make_module(network, config.seed))
        for config in configs
    ]
    with closing(make_engine(configs[0].engine, network(), small_data)) as engine:
        assert play(runs, engine, Silent())
    for single, together in zip(alone, runs, strict=True):
        assert untimed(single.rows) == untimed(together.rows)
        weights = dict(single.model.named_parameters())
        assert all(torch.equal(value, weights[name]) for name, value in together.state.params.items())


def test_the_cap_stops_a_run_before_it_is_passed(small_config: Configure, small_data: Dataset) -> None:
    once = run(small_config(method="fedavgm", rounds=1), model=network, data=small_data)
    bits = once.rows[0].upload_bits
    capped = run(small_config(method="fedavgm", rounds=0, cap_gib=3.5 * bits / GIB), model=network, data=small_data)
    assert len(capped.rows) == 3
    assert capped.rows[-1].accuracy is not None
    assert capped.summary.stopped_by == "cap"


def test_the_cap_looks_ahead_to_a_round_in_which_masks_travel(small_config: Configure, small_data: Dataset) -> None:
    free = run(small_config(), model=network, data=small_data)
    first, second = free.rows[0].upload_bits, free.rows[1].upload_bits
    assert second > 2 * first  # round 2 readjusts
    config = small_config(rounds=0, cap_gib=(second - 1) / GIB)
    capped = run(config, model=network, data=small_data)
    assert [row.round for row in capped.rows] == [1]
    assert capped.rows[-1].accuracy is not None
    with pytest.raises(OptionError, match=r"cap_gib must be at least .*, one round of feddst, got"):
        run(small_config(rounds=0, cap_gib=(first - 1) / GIB), model=network, data=small_data)


def test_divergence_keeps_the_last_checkpoint(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    config = small_config(checkpoint_every=3)

    class Breaking(Silent):
        def row(self, run: Run, row: Row) -> None:
            if row.round == 3:
                run.method = replace(run.method, local=replace(run.method.local, lr=1e30))

    with pytest.raises(TrainingError, match=r"^round 6: .*the 2 rounds before it; client \d+ diverged in round 6"):
        run(config, model=network, data=small_data, out=tmp_path / "a", watcher=Breaking())
    whole = run(config, model=network, data=small_data)
    assert_same(whole, run(config, model=network, data=small_data, out=tmp_path / "a", resume=True))


def test_stragglers_are_left_out_by_fedavgm_and_kept_by_fedprox(small_config: Configure, small_data: Dataset) -> None:
    taken = {}
    for method in ("fedavgm", "fedprox"):
        result = run(small_config(method=method, cohort__stragglers=0.5, rounds=2), model=network, data=small_data)
        taken[method] = [row.clients for row in result.rows]
    assert taken == {"fedavgm": [2, 2], "fedprox": [4, 4]}


def test_a_round_in_which_everybody_straggles_changes_nothing(small_config: Configure, small_data: Dataset) -> None:
    result = run(small_config(method="fedavgm", cohort__stragglers=1.0, rounds=2), model=network, data=small_data)
    start = make_module(network, 0)
    assert all(torch.equal(p, q) for p, q in zip(result.model.parameters(), start.parameters(), strict=True))
    assert result.rows[-1].upload_bits == 0
    assert result.rows[-1].download_bits > 0


def test_fewer_rounds_leave_a_finished_run_as_it_is(
    tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    run(small_config(rounds=4), model=network, data=small_data, out=tmp_path / "a")
    kept = {path: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    again = run(small_config(rounds=2), model=network, data=small_data, out=tmp_path / "a", resume=True)
    assert len(again.rows) == 4
    assert {path: path.read_bytes() for path in (tmp_path / "a").iterdir()} == kept


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"config": {"rounds": 2}}, "config must be a RunConfig, as feddst.configure makes, got dict"),
        ({"data": [1, 2]}, r"data must be a feddst.Dataset, a feddst.Federation or a pair \(train, test\), got list"),
        ({"config": RunConfig(), "model": "resnet18"}, "model must be an nn.Module or a function"),
    ],
)
def test_wrong_objects_are_named(wrong: dict[str, Any], message: str, small_data: Dataset) -> None:
    with pytest.raises(feddst.FeddstError, match=message):
        run(**wrong)


def test_your_own_split_is_used_as_it_is(small_config: Configure, small_data: Dataset) -> None:
    images, labels = small_data.train_images, small_data.train_labels
    parts = [(images[i::5], labels[i::5]) for i in range(5)]
    federation = Federation.from_clients(train=parts, test=(small_data.test_images, small_data.test_labels))
    result = run(small_config(rounds=4), model=network, data=federation)
    assert result.config.data.clients == 5
    assert result.finished
    with pytest.raises(OptionError, match=r"cohort\.size must be at most data\.clients \(5\), got 6"):
        run(small_config(cohort__size=6), model=network, data=federation)


def test_a_model_with_nothing_to_prune_is_refused_before_anything_is_written(
    tmp_path: Path, small_config: Configure, small_data: Dataset
) -> None:
    with pytest.raises(ModelError, match="nothing to prune"):
        run(small_config(), model=lambda: nn.Flatten(), data=small_data, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_bad_options_are_refused_before_the_data_is_read(tmp_path: Path) -> None:
    config = updated(RunConfig(), {"data.dataset": "folder", "data.root": str(tmp_path / "missing")})
    with pytest.raises(OptionError, match=r"sparsity\.level must be in \[0, 1\), got 1.0"):
        feddst.run(replace(config, sparsity=replace(config.sparsity, level=1.0)))


def test_a_result_says_what_came_out_in_one_line(tmp_path: Path, small_config: Configure, small_data: Dataset) -> None:
    result = run(small_config(rounds=2), model=network, data=small_data, out=tmp_path / "a")
    figures = f"best {result.summary.best:.1%}, final {result.summary.final:.1%}"
    assert repr(result) == f"Result(feddst: 2 rounds, finished, {figures}, in {tmp_path / 'a'})"
