"""What was measured on a CPU, as tables."""

from collections.abc import Sequence
from typing import Any

from benchmarks.cpu.arithmetic import SIZE
from benchmarks.cpu.jobs import INTERVAL
from benchmarks.cpu.kernels import BATCHES, CrossingRow, KernelRow
from benchmarks.cpu.measure import CpuRecord
from benchmarks.cpu.rounds import RoundRow
from benchmarks.cpu.targets import verdicts
from benchmarks.tables import Table, paragraphs
from benchmarks.targets import target_table
from feddst.runtime.wording import counted, percent
from feddst.stopwatch import Timing

NONE = "–"
_WHO = ("job", "runner", "S", "layers")


def tables(record: CpuRecord) -> list[Table]:
    """All tables of the parts that were measured."""
    found = [_targets(record), _rounds(record), _arithmetic(record)] if record.rounds else []
    found += [_crossings(record), _kernels(record)] if record.kernels else []
    return found + ([_evaluations(record)] if record.evaluations else [])


def markdown(record: CpuRecord, about: dict[str, Any]) -> str:
    """A page with all tables; `about` is the record as JSON."""
    place = ", ".join(f"{name} {value}" for name, value in about["machine"].items() if name != "cpu")
    heading = (
        f"Made by `{about['command']}` in {about['seconds']:.0f} s, commit {about['commit'] or 'unknown'}, "
        f"on {about['machine']['cpu']} ({place}), with {record.isa} kernels.{_others(record)}"
    )
    use = "Use this page to see how fast clients train on a CPU, beside PyTorch. In short: [speed](speed.md)."
    return "\n\n".join(["# What a round costs on a CPU", use, heading, *paragraphs(tables(record))]) + "\n"


def _targets(record: CpuRecord) -> Table:
    caption = (
        f"What the native engine was designed for. Speeds are those of a run in which one round in {INTERVAL} "
        "readjusts masks: how many times as fast as PyTorch, then our seconds a round and PyTorch's. Steps are those "
        "of ordinary rounds: their seconds at each S."
    )
    return target_table(caption, verdicts(record))


def _rounds(record: CpuRecord) -> Table:
    caption = (
        f"Seconds of a round, with {counted(record.workers, 'thread')} of ours or as many processes of PyTorch, which "
        "train dense networks. Ours are whole rounds of a run, without evaluation: broadcasts and updates as bytes, "
        "training, aggregation, pruning, metrics. Runners take turns; the first round of a turn is not timed. "
        "A client has 40 images (mnist, in minibatches of 32 and 8) or 100 (cifar10, in minibatches of 32 and one of "
        "4). Those of cifar10 are noise, on which times depend little." + _others(record)
    )
    columns = {
        "readjusting": "rounds in which clients readjust masks. The round after it counts as an ordinary one.",
        "×": "how many times as long PyTorch takes, by medians; *× min* by shortest rounds.",
        f"× 1 in {INTERVAL}": f"by medians, if one round in {INTERVAL} readjusts masks.",
    }
    times = ("median s", "min s", "×", "× min")
    heading = (*_WHO, *times, "readjusting: median s", "min s", "×", f"× 1 in {INTERVAL}")
    return Table("Rounds", caption, [heading, *(_round_line(record, row) for row in record.rounds)], columns=columns)


def _round_line(record: CpuRecord, row: RoundRow) -> Sequence[str]:
    torch, rare = record.torch(row).ordinary, row.readjusting
    again = (NONE,) * 3 if rare is None else (*_seconds(rare), f"{torch.median / rare.median:.2f}")
    return (
        *_who(row),
        *_seconds(row.ordinary),
        f"{torch.median / row.ordinary.median:.2f}",
        f"{torch.shortest / row.ordinary.shortest:.2f}",
        *again,
        f"{record.speedup(row):.2f}",
    )


def _arithmetic(record: CpuRecord) -> Table:
    assert record.gemm is not None
    caption = "What an ordinary round computes, and how close that comes to the fastest matrix products here."
    columns = {
        "GFLOP": "convolutions and linear layers, each at its density: two for each multiply-add of outputs, weights' "
        "gradients and inputs' gradients (the first layer has none). Biases, pooling, ReLU, loss and SGD's steps are "
        "not counted, nor is what dense kernels compute for absent weights.",
        "floor s": f"seconds at the rate of float32 matrix products of {SIZE}³: {record.gemm.alone_median:,.1f} "
        f"GFLOP/s of one thread, {record.gemm.together_median:,.1f} of {record.gemm.threads} at once (medians of "
        f"{len(record.gemm.alone)}).",
        "share": "of that rate.",
    }
    rows = [
        (
            *_who(row),
            f"{row.density:.3f}",
            f"{row.flops / 1e9:,.2f}",
            f"{record.floor(row):.4f}",
            f"{row.ordinary.median:.4f}",
            f"{row.gflops:,.1f}",
            f"{100 * record.floor(row) / row.ordinary.median:.1f} %",
        )
        for row in record.rounds
    ]
    return Table(
        "Arithmetic",
        caption,
        [(*_WHO, "density", "GFLOP", "floor s", "median s", "GFLOP/s", "share"), *rows],
        columns=columns,
    )


def _crossings(record: CpuRecord) -> Table:
    caption = (
        "The density from which on a layer is faster if kernels go through all its weights, by the times in the next "
        "table, interpolated between neighbouring densities; and the density from which on the engine lets them."
    )
    rows = [_crossing_line(row) for row in record.crossings]
    return Table("Where kernels cross", caption, [("network", "layer", "images", "crossing", "taken from"), *rows])


def _crossing_line(row: CrossingRow) -> Sequence[str]:
    crossing = NONE if row.crossing is None else f"{row.crossing:.2f}"
    return (row.network, row.layer, str(row.images), crossing, f"{row.taken_from:.2f}")


def _kernels(record: CpuRecord) -> Table:
    caption = (
        "Microseconds of one thread for a step of SGD, forward and backward, of one layer on so many images: the "
        "shortest step of a network of it and little else, less the same with a single weight in the layer."
    )
    columns = {
        "sparse": "kernels that go through the layer's active weights.",
        "dense": "kernels that go through all of them.",
        "ratio": "sparse to dense.",
    }
    times = [word for images in BATCHES for word in (f"{images}: sparse µs", "dense µs", "ratio")]
    rows: dict[tuple[str, ...], list[str]] = {}
    for row in record.kernels:
        rows.setdefault((row.network, row.layer, f"{row.density:.1f}"), []).extend(_kernel_words(row))
    body = [[*place, *words] for place, words in rows.items()]
    return Table("Kernels", caption, [("network", "layer", "density", *times), *body], columns=columns)


def _kernel_words(row: KernelRow) -> Sequence[str]:
    return (*(f"{1e6 * seconds:,.0f}" for seconds in row.own), f"{row.ratio:.2f}")


def _evaluations(record: CpuRecord) -> Table:
    caption = (
        f"Seconds to test a network on all test images, with {counted(record.workers, 'thread')} of the native engine "
        "or as many processes of the reference engine, in turn."
    )
    columns = {
        "×": "how many times as long the reference engine takes, by medians.",
    }
    rows = [
        (
            row.job,
            f"{row.case.level:g}",
            f"{row.images:,}",
            *_seconds(row.native),
            *_seconds(row.reference),
            f"{row.ratio:.2f}",
        )
        for row in record.evaluations
    ]
    heading = ("job", "S", "images", "native: median s", "min s", "reference: median s", "min s", "×")
    return Table("Evaluation", caption, [heading, *rows], columns=columns)


def _others(record: CpuRecord) -> str:
    """How quiet the machine was, as a sentence to add."""
    return "" if record.others is None else f" Others had {percent(record.others)} of the processors' time meanwhile."


def _who(row: RoundRow) -> Sequence[str]:
    if row.runner == "PyTorch":
        return (row.job, row.runner, NONE, NONE)
    return (row.job, row.runner, f"{row.case.level:g}", row.case.layers or NONE)


def _seconds(timing: Timing) -> Sequence[str]:
    return (f"{timing.median:.3f}", f"{timing.shortest:.3f}")
