"""The figures of the results page, and of the README where it repeats them, are those of the records."""

import json
import re
from pathlib import Path

import pytest

from feddst.experiment.reproduce import Record, load_record
from feddst.experiment.reproduce.paired import paired_difference
from feddst.experiment.reproduce.paper import PAPER
from feddst.experiment.reproduce.table import cell

ROOT = Path(__file__).parents[1]
RESULTS, README, STACKED = ((ROOT / name).read_text() for name in ("docs/results.md", "README.md", "docs/stacked.md"))
TEXT, CODE, CIFAR, CIFAR_CODE, EXACT = (
    load_record(ROOT / f"results/{name}")
    for name in ("table1-paper", "table1-published", "table2-paper", "table2-published", "table1-float32")
)
SWEEPS = {name: load_record(ROOT / f"results/{name}-mnist") for name in ("alpha", "sparsity", "schedule")}
NAMES = {"FedAvgM": "fedavgm", "RandomMask": "randommask", "FedDST": "feddst"}


def cells(page: str, title: str) -> list[str]:
    """The cells of the one table row of a page that begins with this."""
    [found] = all_cells(page, title)
    return found


def all_cells(page: str, title: str) -> list[list[str]]:
    """The same of all such rows."""
    lines = [line for line in page.splitlines() if line.startswith(f"| {title} |")]
    return [[word.strip() for word in line.split("|")[2:-1]] for line in lines]


def found(record: Record, name: str) -> list[str]:
    [row] = [row for row in record.rows if row.name == name]
    return [str(cell(record, row, cap)) for cap in record.caps]


def spread(record: Record, name: str) -> str:
    """The worst and the best seed of a row at the last cap."""
    [row] = [row for row in record.rows if row.name == name]
    best = row.best(record.caps[-1]).values()
    return f"{min(best):.0f} and {max(best):.0f}"


def in_a_line(page: str) -> str:
    return re.sub(r"\s+", " ", page)


@pytest.mark.parametrize("title", NAMES)
def test_the_rows_as_the_text_has_them(title: str) -> None:
    assert cells(RESULTS, f"{title}, paper's text") == found(TEXT, NAMES[title])
    assert cells(README, title) == found(TEXT, NAMES[title])


@pytest.mark.parametrize("title", ["RandomMask", "FedDST"])
def test_the_rows_as_the_code_has_them_and_as_reported(title: str) -> None:
    reported = [f"{one.mean:.2f} ± {one.spread:.2f}" for one in PAPER["table1"][NAMES[title]]]
    assert cells(RESULTS, f"{title}, published code") == found(CODE, NAMES[title])
    assert cells(RESULTS, f"{title}, reported") == reported


@pytest.mark.parametrize("title", NAMES)
def test_the_rows_of_table_2(title: str) -> None:
    reported = [f"{one.mean:.2f} ± {one.spread:.2f}" for one in PAPER["table2"][NAMES[title]]]
    assert cells(RESULTS, f"{title}, CIFAR-10, paper's text") == found(CIFAR, NAMES[title])
    assert cells(RESULTS, f"{title}, CIFAR-10, reported") == reported
    assert cells(README, f"{title}, CIFAR-10") == found(CIFAR, NAMES[title])


@pytest.mark.parametrize("title", ["RandomMask", "FedDST"])
def test_the_rows_of_table_2_as_the_code_has_them(title: str) -> None:
    assert cells(RESULTS, f"{title}, CIFAR-10, published code") == found(CIFAR_CODE, NAMES[title])


@pytest.mark.parametrize("record", SWEEPS.values(), ids=SWEEPS)
def test_the_rows_of_sweeps(record: Record) -> None:
    for row in record.rows:
        title = f"**{row.title}**" if row.name == record.usual else row.title
        assert cells(RESULTS, title) == found(record, row.name)


def test_how_near_the_published_code_comes_on_cifar10() -> None:
    words = in_a_line(RESULTS)
    away = {
        name: [
            (cell(CIFAR_CODE, row, cap).mean - reported.mean) / reported.spread
            for cap, reported in zip(CIFAR_CODE.caps, PAPER["table2"][name.removesuffix("-still")], strict=True)
        ]
        for name in ("randommask", "fedavgm-still", "grasp", "prunefl", "feddst")
        for row in CIFAR_CODE.rows
        if row.name == name
    }
    far = {name: f"{max(map(abs, each)):.1f}" for name, each in away.items()}
    assert f"within {far['randommask']} of the paper's standard deviations at every cap; FedAvgM" in words
    assert f"leaves on, within {far['fedavgm-still']}; GraSP within {far['grasp']} and PruneFL within" in words
    assert f"PruneFL within {far['prunefl']}." in words
    assert f"by {-away['feddst'][0]:.1f} of its standard deviations at 4 GiB" in words
    assert all(each > 0 for each in away["grasp"] + away["prunefl"])


def test_precision_makes_no_difference() -> None:
    rows = [next(row for row in record.rows if row.name == "feddst") for record in (EXACT, TEXT)]
    assert f"reaches {cell(EXACT, rows[0], 1.0)} there" in in_a_line(RESULTS)
    assert f"of {paired_difference(rows[0].best(1.0), rows[1].best(1.0))} points" in in_a_line(RESULTS)


@pytest.mark.parametrize(
    ("record", "one", "other", "cap", "pages"),
    [
        (CODE, "feddst", "randommask", 1.0, (RESULTS, README)),
        (CODE, "feddst", "randommask", 2.0, (RESULTS,)),
        (CODE, "feddst", "randommask", 4.0, (RESULTS,)),
        (TEXT, "feddst", "randommask", 1.0, (RESULTS, README)),
        (TEXT, "feddst", "randommask", 2.0, (RESULTS,)),
        (TEXT, "feddst", "fedavgm", 1.0, (RESULTS,)),
        (TEXT, "feddst", "fedavgm", 4.0, (RESULTS,)),
        (TEXT, "feddst", "fedavgm-bfloat16", 1.0, (RESULTS,)),
        (TEXT, "feddst", "fedavgm-bfloat16", 4.0, (RESULTS,)),
        (TEXT, "fedprox", "fedavgm", 4.0, (RESULTS,)),
        (TEXT, "feddst+fedprox", "feddst", 4.0, (RESULTS,)),
        *(
            (record, "feddst", "randommask", cap, (RESULTS,))
            for record in (CIFAR, CIFAR_CODE)
            for cap in (4.0, 8.0, 12.0, 16.0)
        ),
        (CIFAR, "feddst", "randommask", 16.0, (README,)),
        (CIFAR, "feddst", "fedavgm", 16.0, (README,)),
        (SWEEPS["sparsity"], "sparsity=0.5", "sparsity=0.8", 1.0, (RESULTS,)),
        (SWEEPS["sparsity"], "sparsity=0.5", "sparsity=0.8", 4.0, (RESULTS,)),
        (SWEEPS["sparsity"], "sparsity=0.9", "sparsity=0.8", 4.0, (RESULTS,)),
        (SWEEPS["sparsity"], "sparsity=0.95", "sparsity=0.8", 4.0, (RESULTS,)),
        (SWEEPS["alpha"], "alpha=0.001", "alpha=0.05", 1.0, (RESULTS,)),
        *((SWEEPS["schedule"], f"schedule={epoch}", "schedule=10", 4.0, (RESULTS,)) for epoch in (1, 3, 8)),
        *(
            (CIFAR, "feddst", other, cap, (RESULTS,))
            for other in ("fedavgm", "fedavgm-bfloat16")
            for cap in (4.0, 16.0)
        ),
        (CIFAR, "fedprox", "fedavgm", 16.0, (RESULTS,)),
        *((CIFAR, "feddst+fedprox", "feddst", cap, (RESULTS,)) for cap in (4.0, 16.0)),
    ],
)
def test_paired_differences(record: Record, one: str, other: str, cap: float, pages: tuple[str, ...]) -> None:
    rows = {row.name: row.best(cap) for row in record.rows}
    for page in pages:
        assert str(paired_difference(rows[one], rows[other])) in in_a_line(page)


def test_grasp_is_said_to_spread_as_it_does() -> None:
    words = in_a_line(RESULTS)
    assert f"({found(TEXT, 'grasp')[-1]} at 4 GiB)" in words
    assert f"left: {found(CODE, 'grasp')[-1]}." in words
    assert f"between {spread(TEXT, 'grasp')} % (88" in words
    assert f"between {spread(CIFAR, 'grasp')} % ({found(CIFAR, 'grasp')[-1]} at 16 GiB)" in words


def test_one_seed_of_fedavgm_never_learns_as_the_code_has_it() -> None:
    [row] = [row for row in CODE.rows if row.name == "fedavgm-still"]
    worst, *others = sorted(row.best(4.0).values())
    assert worst < 20
    assert f"end between {others[0]:.1f} and {others[-1]:.1f} %" in in_a_line(RESULTS)
    assert f"the mean is {found(CODE, 'fedavgm-still')[-1]}." in in_a_line(RESULTS)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (CODE, "took 6 min 5 s on one H200"),
        (CIFAR, "9 min 56 s"),
        (CIFAR_CODE, "in two calls, 12 min 9 s"),
        (SWEEPS["alpha"], "3 min 28 s (α)"),
        (SWEEPS["schedule"], "3 min 15 s (E_p)"),
        (SWEEPS["sparsity"], "2 min 43 s (sparsity)"),
    ],
)
def test_seconds_taken(record: Record, words: str) -> None:
    minutes, seconds = divmod(round(sum(one.seconds for one in record.made)), 60)
    assert f"{minutes} min {seconds} s" in words
    assert words in in_a_line(RESULTS)


def test_steps_on_a_gpu() -> None:
    record = json.loads((ROOT / "results/gpu-bench.json").read_text())
    steps = {step["runner"]: step for step in record["steps"] if (step["network"], step["images"]) == ("mnist-cnn", 32)}
    ms = {runner: 1000 * step["median"] for runner, step in steps.items()}
    words, ours = in_a_line(STACKED), steps["feddst"]
    assert f": {ms['feddst']:.2f} ms, where grouped" in words
    assert f"take {ms['grouped']:.2f} ms" in words
    assert f"`torch.compile` {ms['vmap']:.2f} ms, and one model after another {ms['single']:.0f} ms" in words
    assert f"That is {ours['tflops']:.1f} TFLOP/s of dense arithmetic, {100 * ours['share']:.0f} %" in words
    assert f"takes {ms['feddst']:.2f} ms on an H200, one model after another {ms['single']:.0f} ms" in README


def test_steps_of_the_cifar10_network_on_a_gpu() -> None:
    record = json.loads((ROOT / "results/gpu-bench-cifar10.json").read_text())
    ms = {(step["runner"], step["images"]): 1000 * step["median"] for step in record["steps"]}
    words = in_a_line(STACKED)
    assert f"it is {ms['feddst', 32]:.2f} ms, where grouped convolutions take {ms['grouped', 32]:.2f} ms" in words
    assert f"`vmap` {ms['vmap', 32]:.2f} ms and one model after another {ms['single', 32]:.0f} ms" in words
    few = [
        f"{ms[runner, 8]:.{digits}f} ms"
        for runner, digits in [("feddst", 2), ("grouped", 2), ("vmap", 2), ("single", 0)]
    ]
    assert f"with 8 images each {', '.join(few[:3])} and {few[3]}" in words


def test_training_over_slow_links() -> None:
    record = json.loads((ROOT / "results/slow-network.json").read_text())
    titles = {"fedavgm": "FedAvgM", "randommask": "RandomMask", "feddst": "FedDST"}
    assert len(record["runs"]) == 6
    for run in record["runs"]:
        assert run["reached"]
        end, bits = run["curve"][-1], "4 bits" if run["values"] == "q4" else "32 bits"
        told = [
            f"{end['round']}",
            f"{end['seconds']:.0f} s",
            *(f"{end[way] / 2**20:.1f} MiB" for way in ("up", "down")),
        ]
        assert cells(README, f"{titles[run['method']]}, {bits}") == told


def test_a_round_without_work_under_flower() -> None:
    record = json.loads((ROOT / "results/flower-rounds.json").read_text())
    seconds = record["mean_seconds"]
    words = in_a_line((ROOT / "docs/flower.md").read_text())
    assert f"takes {seconds['own']:.2f} s with three nodes" in words
    assert (
        f"takes {seconds['flower-evaluate']:.2f} s with its evaluation and {seconds['flower']:.2f} s without" in words
    )


def test_bytes_that_flower_adds() -> None:
    record = json.loads((ROOT / "results/flower-bytes.json").read_text())
    page = (ROOT / "docs/flower.md").read_text()
    for case in record["cases"]:
        told = [f"{case[who][way]:,}" for way in ("up", "down") for who in ("said", "seen")]
        told += [f"{case['over_a_message'][way]:,.0f}" for way in ("up", "down")]
        assert cells(page, f"{case['method']}, {case['values']}") == told


def test_sizes_of_exported_files() -> None:
    record = json.loads((ROOT / "results/export-sizes.json").read_text())
    page = (ROOT / "docs/export.md").read_text()
    for file in record["files"]:
        plain = file["format"] == "safetensors" or file["values"] == "float32"
        title = f"`{file['format']}{'' if plain else ' --values ' + file['values']}`"
        told = [f"{file['bytes']:,}", f"{file['of_dense']:.2f}", f"{100 * file['accuracy']:.2f} %"]
        [found] = [found for found in all_cells(page, title) if found[0][:1].isdigit()]
        assert found == [*told, f"{file['largest_change']:.2g}"]
