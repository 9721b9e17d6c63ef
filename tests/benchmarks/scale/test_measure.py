"""The scale bench: made-up clients, sums of parts, what follows for more clients, and what its record shows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.scale.cases import IMAGES, Case, Kind
from benchmarks.scale.clients import MadeUpClients
from benchmarks.scale.flower import FlowerCosts
from benchmarks.scale.memory import forget_peak, peak, resident
from benchmarks.scale.outlook import OVERHEAD, outlooks
from benchmarks.scale.processes import apart
from benchmarks.scale.server import Lap, Measured, measure_case
from benchmarks.scale.sums import (
    SumRow,
    measure_sums,
    merged_sum,
    partial_bytes,
    same,
)
from feddst.clients.exchange import layout_of
from feddst.clients.steps import Readjust
from feddst.core import SparseSum, Update, count_active
from feddst.data import RemoteFederation
from feddst.errors import TrainingError
from feddst.runtime.run import Run
from feddst.wire import ClientTask, Reference, decode_update

ROOT = Path(__file__).parents[3]


def small(kind: Kind, codec: str = "float32", clients: int = 5) -> Case:
    return Case("mnist-cnn", codec, kind, clients, level=0.8, seed=3, rounds=2)


def first_task(case: Case) -> ClientTask:
    images = dict.fromkeys(range(case.clients), IMAGES)
    federation = RemoteFederation(torch.zeros(1, 1, 28, 28), 10, case.clients, images)
    return Run(case.config(), federation, case.module(), untrusted=True).open_round()[0]


def clients_of(case: Case, task: ClientTask) -> MadeUpClients:
    clients = MadeUpClients(layout_of(case.module()), case.seed)
    clients.hear(task)
    return clients


@pytest.mark.parametrize("codec", ["float32", "q4"])
def test_made_up_updates_are_valid_and_no_two_are_alike(codec: str) -> None:
    case = small("readjusting", codec)
    task = first_task(case)
    reference, clients = task.sent, clients_of(case, task)
    payloads = {clients.answer(client) for client in range(case.clients)}
    assert len(payloads) == case.clients
    masks = []
    for client in range(case.clients):
        update = decode_update(clients.answer(client), replace(task, client=client))
        assert update.masks is not None
        assert count_active(update.masks) == count_active(reference.broadcast.masks)
        masks.append(update.masks["fc1.weight"])
    readjust = task.plan.step(Readjust)
    assert readjust is not None
    moved = int((masks[0] & ~reference.broadcast.masks["fc1.weight"]).sum())
    assert moved == readjust.drop["fc1.weight"] > 0
    assert not torch.equal(masks[0], masks[1])


def test_in_an_ordinary_round_they_have_the_mask_that_they_were_sent() -> None:
    case = small("ordinary")
    task = first_task(case)
    reference, update = task.sent, clients_of(case, task).update(1)
    assert update.masks is None
    change = update.params["fc1.weight"] - reference.values["fc1.weight"]
    assert 0 < float(change.abs().mean()) < 0.02


# Sums of parts.


def updates_of(kind: Kind) -> tuple[Reference, list[Update]]:
    case = small(kind, clients=7)
    task = first_task(case)
    clients = clients_of(case, task)
    return task.sent, [clients.update(client) for client in range(case.clients)]


@pytest.mark.parametrize("kind", ["ordinary", "readjusting"])
@pytest.mark.parametrize("leaves", [1, 2, 3, 7])
def test_a_tree_of_sums_has_the_bits_of_one_sum(kind: Kind, leaves: int) -> None:
    reference, updates = updates_of(kind)
    masks = reference.broadcast.masks
    whole = SparseSum(masks)
    for update in reversed(updates):
        whole.add(update)
    tree = merged_sum(masks, updates, leaves)
    assert same(whole.mean(), tree.mean())
    assert same(whole.held(), tree.held())
    assert (tree.updates, tree.weight) == (7, 7 * IMAGES)


@pytest.mark.parametrize("kind", ["ordinary", "readjusting"])
def test_the_size_of_a_partial_sum_is_that_of_its_numbers(kind: Kind) -> None:
    reference, updates = updates_of(kind)
    total = merged_sum(reference.broadcast.masks, updates, 1)
    tensors = [part for row in total._rows.values() for part in row.total.parts]
    tensors += [part for whole in total._wholes.values() for part in (*whole.total.parts, whole.weights)]
    assert partial_bytes(updates[0], reference.broadcast.params) == sum(t.numel() * t.itemsize for t in tensors)


def test_sums_are_measured_in_a_process_of_their_own() -> None:
    row = apart(measure_sums, small("readjusting", "q4"))
    assert row.partial == 24 * 261_840
    assert 30_000 < row.payload < 35_000
    assert min(row.decode, row.add, row.merge, row.flower.pack, row.flower.unpack) > 0
    assert row.flower.objects >= 4  # the message, its records, its array with the payload


# Rounds.


def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    case = small("ordinary", "q4", clients=20)
    found = apart(measure_case, case)
    assert (found.case, found.dense) == (case, 4 * 261_840)
    assert found.up == 20 * 28_064
    assert found.down == 20 * 209_808  # the second round's broadcast names the mask, and does not hold it
    assert found.peak >= found.kept
    assert found.peak > found.dense
    for lap in (*found.laps, found.lap):
        assert min(lap.opening, lap.sending, lap.fetching, lap.adding, lap.closing) > 0
        assert lap.total == pytest.approx(lap.opening + lap.sending + lap.fetching + lap.adding + lap.closing)
    assert found.lap.adding == pytest.approx(sum(lap.adding for lap in found.laps) / 2)


def test_a_process_that_dies_is_an_error() -> None:
    with pytest.raises(TrainingError, match="mnist-cnn, no codec, ordinary, 5 clients: the server's process ended"):
        apart(measure_case, small("ordinary", "no codec"))


def test_a_peak_is_forgotten() -> None:
    forget_peak()
    before = resident()
    block = bytearray(b"x" * 64_000_000)
    size = len(block)
    del block
    assert peak() > before + size / 2
    forget_peak()
    assert peak() < before + size / 2


# What follows.


def measured(clients: int, peak: int) -> Measured:
    lap = Lap(opening=0.01, sending=0.02, fetching=0.03, adding=0.4 * clients / 1000, closing=0.05)
    case = replace(small("ordinary"), clients=clients)
    return Measured(case, dense=4000, up=100 * clients, down=200 * clients, kept=1, peak=peak, laps=(lap,))


def test_an_outlook_can_be_worked_out_by_hand() -> None:
    sums = SumRow(small("ordinary"), 100, 1600, 1e-3, 2e-3, 3e-3, FlowerCosts(objects=6, pack=4e-3, unpack=1e-3))
    rows = [measured(1000, 50_000 + 1000 * 7), measured(10, 12), measured(500, 50_000 + 500 * 7)]
    [found] = outlooks(rows, [sums])
    assert (found.up, found.down, found.dense) == (1_000_000, 2_000_000, 40_000_000)
    assert found.overhead == 10_000 * OVERHEAD
    assert found.seconds == pytest.approx(10 * 0.46 + 0.05)
    assert found.adding == pytest.approx(4.0)
    assert found.flower == pytest.approx(50.0)
    assert (found.looking, found.fetching) == (625, 70_000)
    assert found.each == pytest.approx(7.0)  # the size below 16 clients does not count
    assert found.memory == 50_000 + 70_000
    assert found.leaf == pytest.approx(4.0 / 16)
    assert found.root == pytest.approx(16 * 3e-3 + 0.05)
    assert (found.root_in, found.worthwhile) == (16 * 1600, 16)


def test_one_size_makes_a_flat_line() -> None:
    sums = SumRow(small("ordinary"), 100, 1600, 1e-3, 2e-3, 3e-3, FlowerCosts(6, 4e-3, 1e-3))
    [found] = outlooks([measured(20, 12_345)], [sums])
    assert (found.each, found.memory) == (0.0, 12_345)


# What was measured.

RECORD: dict[str, Any] = json.loads((ROOT / "results/scale-bench.json").read_text())


def test_memory_is_that_of_some_models() -> None:
    rows = {(row["network"], row["codec"], row["kind"], row["clients"]): row for row in RECORD["rows"]}
    for case in {key[:3] for key in rows}:
        few, many = rows[*case, 30], rows[*case, 1000]
        assert many["peak"] < 40 * many["dense"]
        assert (many["peak"] - few["peak"]) / (1000 - 30) < 16_000, case
