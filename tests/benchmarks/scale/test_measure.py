"""The scale bench: made-up clients, sums of parts, what follows for more clients, and the figures of its page."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.scale.cases import IMAGES, Case, Kind
from benchmarks.scale.clients import MadeUpClients
from benchmarks.scale.flower import FlowerCosts
from benchmarks.scale.memory import forget_peak, peak, resident
from benchmarks.scale.outlook import CLIENTS, LEAVES, OVERHEAD, outlooks
from benchmarks.scale.processes import apart
from benchmarks.scale.server import Lap, Measured, measure_case
from benchmarks.scale.sums import (
    FIXED_POINT,
    WITH_WEIGHTS,
    SumRow,
    measure_sums,
    merged_sum,
    partial_bytes,
    same,
)
from feddst.clients.exchange import layout_of
from feddst.clients.steps import Readjust
from feddst.core import SparseSum, Update, count_active
from feddst.core.fixedpoint import LIGHT_UPDATES
from feddst.data import RemoteFederation
from feddst.errors import TrainingError
from feddst.flower.message_client import AT_ONCE, LONGEST, SHORTEST
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


# The page.

PAGE = (ROOT / "docs/scale.md").read_text()
RECORD: dict[str, Any] = json.loads((ROOT / "results/scale-bench.json").read_text())
NETWORKS = {"MNIST": "mnist-cnn", "CIFAR-10": "cifar10-cnn"}
TITLES = [f"{n}, {c}, {k}" for n in NETWORKS for c in ("float32", "q4") for k in ("ordinary", "readjusting")]
MOST = 1000


def pick(rows: list[dict[str, Any]], title: str, clients: int | None = None) -> dict[str, Any]:
    name, codec, kind = title.split(", ")
    key = (NETWORKS[name], codec, kind)
    [row] = [
        row
        for row in rows
        if (row["network"], row["codec"], row["kind"]) == key and clients in (None, row.get("clients"))
    ]
    return row


def round_of(title: str, clients: int = MOST) -> dict[str, Any]:
    return pick(RECORD["rows"], title, clients)


def update_of(title: str) -> dict[str, Any]:
    return pick(RECORD["updates"], title)


def outlook_of(title: str) -> dict[str, Any]:
    return pick(RECORD["outlook"]["rounds"], title)


def cells(heading: str, title: str) -> list[str]:
    """The cells of the row of this title in the one table whose heading begins with this."""
    [table] = [block for block in PAGE.split("\n\n") if block.startswith(f"| {heading} |")]
    [line] = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return [word.strip() for word in line.split("|")[2:-1]]


def says(sentence: str) -> None:
    assert sentence in re.sub(r"\s+", " ", PAGE), sentence


def spread(values: list[float], decimals: int) -> str:
    return f"{min(values):.{decimals}f} to {max(values):.{decimals}f}"


@pytest.mark.parametrize("title", TITLES)
def test_the_tables_of_the_page(title: str) -> None:
    every, largest, update, outlook = RECORD["rows"], round_of(title), update_of(title), outlook_of(title)
    sizes = sorted({row["clients"] for row in every})
    peaks = [round_of(title, clients) for clients in sizes]
    assert cells("models at the peak", title) == [f"{row['peak'] / row['dense']:.1f}" for row in peaks]
    seconds = largest["seconds"]
    assert cells("1,000 clients", title) == [
        f"{seconds['total']:.2f}",
        *(f"{1e6 * seconds[part] / MOST:,.0f}" for part in ("opening", "sending", "fetching", "adding")),
        f"{1e3 * seconds['closing']:.1f}",
    ]
    sent = [outlook[way] for way in ("up", "down", "dense")]
    assert cells("10,000 clients | GB up", title) == [
        *(f"{size / 1e9:.2f}" for size in sent),
        *(f"{8 * size / 600 / 1e6:,.0f}" for size in sent),
    ]
    assert cells("10,000 clients | seconds", title) == [
        *(f"{outlook[part]:.1f}" for part in ("seconds", "adding", "flower")),
        f"{outlook['memory'] / 1e6:,.0f}",
        f"{outlook['each'] / 1e3:.1f}",
    ]
    assert cells("16 leaves", title) == [
        f"{update['payload']:,}",
        f"{update['partial']:,}",
        str(outlook["worthwhile"]),
        f"{1e6 * update['merge']:,.0f}",
        f"{outlook['leaf']:.2f}",
        f"{outlook['root']:.3f}",
        f"{outlook['root_in'] / 1e6:.1f}",
        f"{outlook['up'] / 1e6:,.0f}",
    ]


def test_the_page_on_how_it_was_measured(today: Callable[[str], str]) -> None:
    assert today(RECORD["command"]) == "make bench-scale"
    assert (RECORD["outlook"]["clients"], RECORD["outlook"]["leaves"]) == (CLIENTS, LEAVES)
    assert RECORD["outlook"]["flower_bytes_a_message"] == OVERHEAD
    says(f"made by `{today(RECORD['command'])}`")
    says(f"an {RECORD['machine']['cpu'].replace('(R)', '')}, of which the server had one core")
    says(f"S = {RECORD['level']:g}")
    says("models of " + " and ".join(f"{round_of(f'{n}, q4, ordinary')['dense'] / 1e6:.2f} MB ({n})" for n in NETWORKS))


def test_the_page_on_memory() -> None:
    says(f"**What grows**: up to {max(outlook_of(title)['each'] for title in TITLES) / 1e3:.1f} KB for each client")
    says(f"{spread([update_of(title)['payload'] / 1e3 for title in TITLES], 0)} KB each")
    payload, peak = update_of("MNIST, float32, ordinary")["payload"], round_of("MNIST, float32, ordinary")["peak"]
    says(f"1,000 updates of {payload / 1e3:.0f} KB, {MOST * payload / 1e6:.0f} MB together")
    says(f"the peak of that round is {peak / 1e6:.1f} MB")
    says(f"{AT_ONCE} updates on their way")


def test_memory_is_that_of_some_models() -> None:
    for title in TITLES:
        few, many = round_of(title, 30), round_of(title)
        assert many["peak"] < 40 * many["dense"]
        assert (many["peak"] - few["peak"]) / (MOST - 30) < 16_000, title


def test_the_page_on_bandwidth() -> None:
    outlook, payload = outlook_of("MNIST, q4, ordinary"), update_of("MNIST, q4, ordinary")["payload"]
    large = update_of("CIFAR-10, float32, ordinary")["payload"]
    dense, up, down = (outlook[way] / 1e9 for way in ("dense", "up", "down"))
    says(f"q4 and sparsity make of {dense:.2f} GB {up:.2f} GB, {dense / up:.0f} times less")
    says(f"values are float32 here, {dense / down:.1f} times less than dense")
    [flower] = [
        case["over_a_message"]
        for case in json.loads((ROOT / "results/flower-bytes.json").read_text())["cases"]
        if (case["method"], case["values"]) == ("feddst", "q4")
    ]
    says(f"while they wait, {flower['up']:,.0f} bytes up and {flower['down']:,.0f} down")
    ways = [f"{CLIENTS * flower[way] / 1e6:.0f} MB {way}" for way in ("up", "down")]
    says(f"that is {' and '.join(ways)} in a round")
    shares = [100 * flower["up"] / size for size in (payload, large)]
    says(f"has {shares[0]:.0f} % on top, a float32 update of CIFAR-10's {shares[1]:.1f} %")


def test_the_page_on_time_and_requests() -> None:
    ordinary, readjusting = outlook_of("MNIST, q4, ordinary"), outlook_of("MNIST, q4, readjusting")
    update = update_of("MNIST, q4, ordinary")
    flower, merges = update["flower"], [update["merge"], update_of("MNIST, q4, readjusting")["merge"]]
    says(f"({1e6 * flower['pack']:.0f} µs a letter and {1e6 * flower['unpack']:.0f} µs an answer")
    says(
        f"a merge takes {1e6 * merges[0]:.0f} µs in an ordinary round of MNIST's network, {1e6 * merges[1]:.0f} µs in a"
    )
    says(f"{ordinary['seconds']:.0f} s, or {readjusting['seconds']:.0f} s where masks are readjusted")
    says(f"with {LIGHT_UPDATES:,} updates or more")
    says(f"asks for {AT_ONCE} answers in a request, so it takes {ordinary['looking']} requests to look once")
    says(f"pauses for {SHORTEST} s after a look that brought something, up to {LONGEST} s")
    says(f"each of its {flower['objects']} objects and one to confirm it: {ordinary['fetching']:,} in a round")
    says(f"they have {1e3 * 600 / ordinary['fetching']:.1f} ms each")
    says(f"every 3 s, in all {CLIENTS / 3:,.0f} requests a second")


def test_the_page_on_a_tree() -> None:
    one = outlook_of("MNIST, q4, readjusting")
    says("**This is not built.**")
    says(f"{LEAVES} leaves of {CLIENTS // LEAVES} clients each")
    says(f"{LEAVES} leaves add up in {one['leaf']:.1f} s what takes one core {one['adding']:.0f} s")
    says(f"the root needs {one['root']:.3f} s to merge and close")
    says(f"{FIXED_POINT} bytes for each value that updates carry")
    says(f"{WITH_WEIGHTS} for every value of the model")
