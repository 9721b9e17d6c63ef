"""The stacked engine against the reference: whole runs of every method; every round is audited.

On a GPU where there is one, so that kernels and CUDA graphs are what is tested; else on the CPU, by `vmap`.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.core import LocalTraining, SparseSum, Stack
from feddst.data import Dataset, federate
from feddst.engines import EngineConfig, ReferenceEngine, make_engine
from feddst.engines.stacked.engine import StackedEngine
from feddst.engines.stacked.feedback import left_out
from feddst.engines.stacked.trainer import StackedTrainer
from feddst.engines.stacked.transport import carried
from feddst.errors import AuditError, TrainingError
from feddst.methods import METHODS
from feddst.models import make_module
from feddst.options import updated
from feddst.runtime.config import config_of
from feddst.runtime.loop import Silent, play
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.runtime.run import Run
from feddst.runtime.storage import RunDirectory

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WEIGHTS = 1e-4
"""How far one engine's weights may be from the other's."""

COUNTED = (
    "upload_bytes",
    "upload_mask_bytes",
    "download_bytes",
    "download_mask_bytes",
    "upload_header_bytes",
    "download_header_bytes",
    "upload_bits",
    "download_bits",
    "flops_dense",
    "flops_sparse",
    "clients",
)

MOVING = {"sprout.every": 2, "sprout.alpha": 0.1, "sprout.start": 0.8, "sprout.spread": "same"}
"""Sprout whose mask moves and does not grow."""
SMALL = {
    "rounds": 3,
    "cohort.size": 4,
    "data.clients": 8,
    "data.partition": "dirichlet",
    "data.beta": 0.5,
    "local.epochs": 2,
    "local.batch": 8,
    "local.lr": 0.05,
    "readjust.every": 2,
    "readjust.alpha": 0.3,
    "prunefl.every": 2,
    "prunefl.layer_times": "flops",
    "eval_every": 2,
    "lottery.threshold": 0.1,
}


@pytest.fixture(autouse=True)
def every_round_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["feddst.runtime.run"], "AUDIT_EVERY", 1)


@pytest.fixture(scope="module")
def data() -> Dataset:
    draws = torch.Generator().manual_seed(2)
    images = torch.randn(260, 1, 8, 8, generator=draws)
    labels = torch.randint(0, 4, (260,), generator=draws)
    return Dataset.from_arrays(train=(images[:160], labels[:160]), test=(images[160:], labels[160:]))


def chain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.MaxPool2d(3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 4)
    )


class Branches(nn.Module):
    """No chain: BatchNorm, a frozen layer, a parameter that nothing depends on, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.frozen = nn.Linear(108, 6).requires_grad_(False)
        self.other = nn.Linear(108, 6)
        self.unused = nn.Parameter(torch.ones(5, 5))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        scores: Tensor = self.head(torch.tanh(self.frozen(x) + self.other(x)))
        return scores


def runs_of(
    method: str, data: Dataset, source: Any, options: dict[str, Any], seeds: Sequence[int] = (0, 1)
) -> list[Run]:
    known = {**SMALL, **options}
    kind = METHODS[CROSSED[method].method if method in CROSSED else method]
    groups = {name.partition(".")[0] for name in kind.__dataclass_fields__}
    optional = {"readjust", "prunefl", "lottery", "oneshot"}
    used = {name: value for name, value in known.items() if name.partition(".")[0] not in optional - groups}
    base = config_of({"method": method, **used})
    found = []
    for seed in seeds:
        config = updated(base, {"seed": seed})
        found.append(Run(config, federate(config.data, seed, data), make_module(source, seed)))
    return found


def played(kind: Any, method: str, data: Dataset, source: Any, **options: Any) -> list[Run]:
    where = {"engine.device": DEVICE, "engine.precision": "float32"} if kind == "stacked" else {}
    runs = runs_of(method, data, source, {**options, **where, "engine.kind": kind})
    engine = make_engine(runs[0].config.engine, make_module(source, 0), data, runs[0].config.local)
    assert isinstance(engine, StackedEngine) == (kind == "stacked")
    play(runs, engine, Silent())
    return runs


def assert_same_runs(found: Sequence[Run], expected: Sequence[Run]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name, mask in other.state.masks.items():
            assert torch.equal(one.state.masks[name], mask), name
        for group in ("params", "buffers"):
            for name, value in getattr(other.state, group).items():
                assert float((getattr(one.state, group)[name] - value).abs().max()) <= WEIGHTS, name
        assert one.clients.keys() == other.clients.keys()
        for client, kept in other.clients.items():
            for group in ("tensors", "feedback"):
                mine, its = getattr(one.clients[client], group), getattr(kept, group)
                assert mine.keys() == its.keys()
                for name, value in its.items():
                    assert float((mine[name].cpu().double() - value.double()).abs().max()) <= WEIGHTS
        for mine, its in zip(one.rows, other.rows, strict=True):
            for name in COUNTED:
                assert getattr(mine, name) == getattr(its, name), (mine.round, name)
            assert mine.train_loss == pytest.approx(its.train_loss, abs=1e-4)
            assert (mine.accuracy is None) == (its.accuracy is None)
            if its.loss is not None:
                assert mine.loss == pytest.approx(its.loss, abs=1e-4)


def play_beside(method: str, data: Dataset, source: Any = chain, **options: Any) -> None:
    reference = played("reference", method, data, source, **{"engine.workers": 1, **options})
    assert_same_runs(played("stacked", method, data, source, **options), reference)


@pytest.mark.parametrize("method", [*METHODS, *CROSSED])
def test_every_method_runs_as_on_the_reference_engine(method: str, data: Dataset) -> None:
    play_beside(method, data)


OTHERS: dict[str, dict[str, Any]] = {
    "sgd": {"local.nesterov": True, "local.momentum": 0.5},
    "adam": {"local.schedule_within": "constant"},  # its steps differ from client to client all the same
    "adamw": {"local.l2": 0.3},
}
"""What sets an optimizer apart, beside its name."""


def tiny() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 4))


@pytest.mark.parametrize("method", ["fedavg", "feddst", "lotteryfl"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adagrad"])
def test_every_optimizer_steps_as_on_the_reference_engine(
    optimizer: str, method: str, data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients have unequal numbers of steps, readjust between them, and are clipped; their rate falls in a round."""
    options: dict[str, Any] = {
        "rounds": 2,
        "readjust.every": 1,
        "readjust.after_epoch": 1,
        "local.optimizer": optimizer,
        "local.lr": 0.004,
        "local.clip": 0.8,
        "local.schedule_within": "linear",
        **OTHERS.get(optimizer, {}),
    }
    if method == "fedavg":
        options |= {"proximal.mu": 0.1, "cohort.stragglers": 0.5}
    play_beside(method, data, tiny, **options)
    assert "one client after another" not in caplog.text


class Partly(nn.Module):
    """A frozen layer, and a parameter that nothing depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(64, 6).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(5, 5))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.frozen(x.flatten(1))))
        return scores


def test_decay_leaves_what_is_not_trained(data: Dataset) -> None:
    play_beside("fedavg", data, Partly, **{"local.optimizer": "adamw", "local.l2": 0.3, "local.lr": 0.004})


def test_what_is_not_elementwise_is_trained_one_by_one(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    feddst.register(feddst.optimizers.Torch(torch.optim.NAdam, "nadam"))
    local = LocalTraining(optimizer="nadam")
    assert isinstance(make_engine(EngineConfig("stacked", workers=1), tiny(), data, local), ReferenceEngine)
    assert "one client after another: local.optimizer is nadam, which is not known side by side" in caplog.text


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "stragglers": ("feddst", {"proximal.mu": 1.0, "cohort.stragglers": 0.5, "local.epochs": 4}),
    "readjusted in between": ("feddst", {"readjust.after_epoch": 1}),
    "readjusted by stragglers": (
        "feddst",
        {
            "proximal.mu": 1.0,
            "cohort.stragglers": 0.5,
            "local.epochs": 3,
            "readjust.after_epoch": 2,
            "readjust.every": 1,
        },
    ),
    "grown at random": ("feddst", {"growth.rule": "random"}),
    "grown as published": (
        "feddst",
        {"growth.grow_from": "any", "growth.images": "last-batch", "growth.weights": "unpruned"},
    ),
    "grown by few images": ("feddst", {"growth.max_images": 5}),
    "a first client that does not settle": ("prunefl", {"prunefl.initial_rounds": 5, "prunefl.every": 2}),
    "a first client that prunes once": ("prunefl", {"prunefl.initial_rounds": 0}),
    "mean gradients": ("prunefl", {"prunefl.importance": "mean", "prunefl.initial_rounds": 5}),
    "pruned by all minibatches": ("grasp", {"oneshot.images": "minibatches", "oneshot.kept": "S"}),
    "fixed order": ("feddst", {"local.order": "fixed", "local.weigh_by": "batches"}),
    "drawn with replacement": ("feddst", {"cohort.sampling": "with-replacement"}),
    "a detached proximal term": ("fedprox", {"proximal.gradient": "detached"}),
    "a few models at a time": ("feddst", {"engine.models": 3}),
    "bfloat16": ("feddst", {"wire.values": "bfloat16"}),
    "four bits": ("feddst", {"wire.values": "q4"}),
    "four bits, with reports": ("prunefl", {"wire.values": "q4", "prunefl.initial_rounds": 5}),
    "eight bits both ways": ("feddst", {"wire.values": "q8", "wire.download": "q8"}),
    "one in sixteen": ("feddst", {"wire.values": "top16"}),
    "bfloat16 down": ("randommask", {"wire.download": "bfloat16"}),
    "bitmaps": ("feddst", {"wire.mask": "bitmap"}),
    "feedback": ("feddst", {"wire.values": "q4", "wire.feedback": True, "rounds": 5}),
    "feedback of dense weights": ("fedavgm", {"wire.values": "q8", "wire.feedback": True}),
    "feedback, both ways rounded": (
        "feddst",
        {"wire.values": "q8", "wire.download": "q8", "wire.feedback": True, "engine.models": 3},
    ),
    "feedback from a mask that comes later": (
        "prunefl",
        {"wire.values": "q8", "wire.feedback": True, "rounds": 5, "prunefl.initial_rounds": 5},
    ),
    "feedback under clients' own masks": ("lotteryfl", {"wire.values": "q8", "wire.feedback": True, "rounds": 5}),
    "feedback of shared layers": ("lg-fedavg", {"wire.values": "q8", "wire.feedback": True}),
    "feedback of the largest": ("feddst", {"wire.values": "top8", "wire.feedback": True}),
    "feedback while the server moves masks": (
        "sprout",
        {**MOVING, "wire.values": "top16", "wire.feedback": True, "rounds": 7, "ema": 0.9},
    ),
    "feedback while masks grow": (
        "sprout",
        {
            "wire.values": "top8",
            "wire.feedback": True,
            "rounds": 6,
            "sprout.every": 1,
            "sprout.start": 0.9,
            "sprout.alpha": 0.1,
            "sprout.begin": 1,
            "sprout.end": 5,
            "engine.models": 3,
        },
    ),
    "grown by gradients at the received model": (
        "sprout",
        {
            **MOVING,
            "server.optimizer": "adam",
            "sprout.where": "gradient",
            "wire.values": "q4",
            "wire.feedback": True,
            "rounds": 7,
        },
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_work_is_done_as_the_reference_does_it(variant: str, data: Dataset) -> None:
    method, options = VARIANTS[variant]
    play_beside(method, data, **options)


def test_no_more_is_added_up_than_masks_keep(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    add = SparseSum.add_stack

    def noted(self: SparseSum, stack: Stack, updates: int) -> None:
        widths.append(stack.values.shape[1])
        add(self, stack, updates)

    monkeypatch.setattr(SparseSum, "add_stack", noted)
    [run, *_] = played("stacked", "randommask", data, chain)
    dense = sum(value.numel() for name, value in run.state.params.items() if name not in run.state.masks)
    assert set(widths) == {sum(run.state.budgets.values()) + dense}


def test_deflated_values_are_written_in_every_round(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many bytes they take depends on their last bits, in which engines differ."""
    monkeypatch.setattr(sys.modules["feddst.runtime.run"], "AUDIT_EVERY", 50)
    options = {"wire.packing": "deflate", "wire.values": "q4"}
    found = played("stacked", "randommask", data, chain, **options)
    plain = played("stacked", "randommask", data, chain, **{"wire.values": "q4"})
    expected = played("reference", "randommask", data, chain, **options, **{"engine.workers": 1})
    for mine, other, its in zip(found, plain, expected, strict=True):
        assert mine.rows[-1].upload_bytes < other.rows[-1].upload_bytes
        assert mine.rows[-1].upload_bytes == pytest.approx(its.rows[-1].upload_bytes, rel=0.02)


BRANCHED: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavgm": ("fedavgm", {}),
    "feddst": ("feddst", {}),
    "lg-fedavg": ("lg-fedavg", {"lg.shared_layers": 1}),
    "prunefl": ("prunefl", {}),
    "grown at random": ("feddst", {"growth.rule": "random"}),  # its names are not in their order
    "bfloat16 down": ("fedavgm", {"wire.download": "bfloat16"}),  # rounds what is frozen too
    "four bits both ways": ("lotteryfl", {"wire.values": "q4", "wire.download": "q4"}),
}


@pytest.mark.parametrize("variant", BRANCHED)
def test_a_module_that_is_no_chain(variant: str, data: Dataset) -> None:
    method, options = BRANCHED[variant]
    play_beside(method, data, Branches, **options)


@pytest.mark.parametrize("wire", [{}, {"wire.values": "q8", "wire.feedback": True}], ids=["plain", "feedback"])
def test_an_update_that_no_server_would_take_is_refused(wire: dict[str, Any], data: Dataset) -> None:
    """One image is so bright that its owner's weights become huge."""
    images = data.train_images.clone()
    images[0] *= 1e12
    bright = Dataset.from_arrays((images, data.train_labels), (data.test_images, data.test_labels))
    options = {"rounds": 1, "local.epochs": 1, "local.batch": 1000, "cohort.size": 8, **wire}

    def flat() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))

    expected = played("reference", "fedavgm", bright, flat, **options, **{"engine.workers": 1})
    assert [run.rows[0].refused for run in expected] == [1, 1]
    found = played("stacked", "fedavgm", bright, flat, **options)
    assert_same_runs(found, expected)
    assert [run.rows[0].refused for run in found] == [1, 1]
    assert {len(run.clients) for run in found} == {7 if wire else 0}  # who is refused keeps what it kept: nothing


@pytest.mark.parametrize(
    ("method", "wire"),
    [
        ("feddst", {}),
        ("feddst", {"wire.values": "q4", "wire.feedback": True}),
        ("sprout", {**MOVING, "sprout.grace": 3, "wire.values": "top16", "wire.feedback": True, "ema": 0.9}),
    ],
    ids=["plain", "feedback", "masks that the server moves"],
)
def test_a_resumed_run_ends_with_the_same_bits(
    method: str, wire: dict[str, Any], data: Dataset, tmp_path: Path
) -> None:
    options = {"rounds": 5, "engine.device": DEVICE, "engine.kind": "stacked", **wire}
    [config] = [run.config for run in runs_of(method, data, chain, options, seeds=[3])]
    finished = feddst.run(config, model=chain, data=data, out=tmp_path / "whole", watcher=Silent())
    assert finished.finished
    broken = feddst.run(config, model=chain, data=data, out=tmp_path / "broken", watcher=StopAfter(3))
    assert not broken.finished
    feddst.run(config, model=chain, data=data, out=tmp_path / "broken", watcher=Silent(), resume=True)
    whole, again = (tmp_path / name / "checkpoint.safetensors" for name in ("whole", "broken"))
    assert whole.read_bytes() == again.read_bytes()
    told = [RunDirectory(tmp_path / name).details_file.read_bytes() for name in ("whole", "broken")]
    assert told[0] == told[1]


@pytest.mark.parametrize("method", ["feddst", "lotteryfl", "snip"])
def test_as_much_is_told_of_a_run_as_on_the_reference_engine(method: str, data: Dataset, tmp_path: Path) -> None:
    told = {}
    for kind in ("reference", "stacked"):
        options = {"engine.kind": kind, "engine.device": DEVICE if kind == "stacked" else "cpu", "engine.workers": 1}
        [config] = [run.config for run in runs_of(method, data, chain, options, seeds=[3])]
        feddst.run(config, model=chain, data=data, out=tmp_path / kind, watcher=Silent())
        told[kind] = RunDirectory(tmp_path / kind).details()
    assert told["stacked"] == told["reference"]
    apart = [layer.apart for detail in told["stacked"] for layer in detail.layers if layer.apart is not None]
    assert bool(apart) == (method != "snip")


class StopAfter(Silent):
    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def stop(self) -> bool:
        self._left -= 1
        return self._left <= 0


def test_one_round_of_fifty_is_audited(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["feddst.runtime.run"], "AUDIT_EVERY", 50)
    chosen: list[list[int]] = []
    for run in runs_of("fedavgm", data, chain, {}, seeds=range(6)):
        first = run.state
        audited = []
        for number in range(150):
            run.state = replace(first, round=number)
            if run._audited():
                audited.append(number)
        assert [number // 50 for number in audited] == [0, 1, 2]
        chosen.append(audited)
    assert len({tuple(rounds) for rounds in chosen}) == 6  # each seed draws its own


def test_seeds_side_by_side_are_the_same_as_alone(data: Dataset) -> None:
    together = played("stacked", "feddst", data, chain)
    for run in together:
        (alone,) = runs_of("feddst", data, chain, {}, seeds=[run.config.seed])
        play([alone], make_engine(run.config.engine, make_module(chain, 0), data), Silent())
        assert_same_runs([alone], [run])


def test_what_is_counted_wrongly_is_noticed(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "feddst.engines.stacked.partial.payload_size"
    monkeypatch.setattr(wrong, lambda layout, mask, values: 1 + mask + values)
    with pytest.raises(AuditError, match=r"client \d+ was counted as"):
        played("stacked", "feddst", data, chain)


def test_what_is_added_up_wrongly_is_noticed(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def tampered(*sent: Any) -> Any:
        theta, reports = carried(*sent)
        return theta * 1.0001, reports

    monkeypatch.setattr("feddst.engines.stacked.partial.carried", tampered)
    with pytest.raises(AuditError, match="was added up otherwise than it was sent"):
        played("stacked", "feddst", data, chain)


def test_what_is_kept_wrongly_is_noticed(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def tampered(bundle: Any, arrived: Tensor) -> Any:
        return {row: (remainder, lost * 1.01) for row, (remainder, lost) in left_out(bundle, arrived).items()}

    monkeypatch.setattr("feddst.engines.stacked.partial.left_out", tampered)
    with pytest.raises(AuditError, match=r"client \d+ keeps something else than what was left out"):
        played("stacked", "feddst", data, chain, **{"wire.values": "q4", "wire.feedback": True})


def test_a_client_that_diverges_is_named(data: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"client \d+ diverged in round 1.*lower local.lr, now 1e\+20"):
        played("stacked", "feddst", data, chain, **{"local.lr": 1e20})


@pytest.mark.parametrize(
    ("weight", "lr", "reason"),
    [
        (1e30, 0.05, "the model cannot be sent"),
        (3e10, 0.05, "round 1: 4 of the 4 clients that answered diverged"),
        (1.0, 1e20, r"round 1: 4 of the 4 clients .* client \d+ diverged in round 1"),
    ],
)
def test_a_run_that_cannot_go_on_does_not_stop_the_others(weight: float, lr: float, reason: str, data: Dataset) -> None:
    where = {"engine.kind": "stacked", "engine.device": DEVICE, "engine.precision": "float32"}
    [ill] = runs_of("feddst", data, chain, {**where, "local.lr": lr}, seeds=[0])
    [well] = runs_of("feddst", data, chain, where, seeds=[1])
    weights = {name: value.clone() for name, value in ill.state.params.items()}
    weights["4.weight"].view(-1)[ill.state.masks["4.weight"].reshape(-1).nonzero()[0]] = weight
    ill.state = replace(ill.state, params=weights)
    engine = make_engine(well.config.engine, make_module(chain, 0), data)
    with pytest.raises(TrainingError, match=rf"^feddst, seed 0: {reason}"):
        play([ill, well], engine, Silent())
    assert (len(ill.rows), len(well.rows), well.stopped_by) == (0, 3, "rounds")
    [alone] = runs_of("feddst", data, chain, where, seeds=[1])
    play([alone], engine, Silent())
    assert_same_runs([well], [alone])


class Sorting(nn.Module):
    """Looks at its inputs to decide what to do, which no stack of models can."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x.flatten(1))
        return scores if float(scores.sum().detach()) > 0 else scores * 2


def test_a_module_that_cannot_be_stacked_is_trained_one_by_one(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(EngineConfig("stacked", workers=1), Sorting(), data)
    assert isinstance(engine, ReferenceEngine)
    assert "cannot be stacked" in caplog.text


def test_tasks_of_all_runs_that_are_alike_are_trained_at_once(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    honest = StackedTrainer.train

    def counting(self: StackedTrainer, indices: Any, asked: Any) -> Any:
        sizes.append(len(asked))
        return honest(self, indices, asked)

    monkeypatch.setattr(StackedTrainer, "train", counting)
    played("stacked", "feddst", data, chain)
    assert sizes == [8, 8, 8]
