"""Every table that pages have from records is as the records have it now; what is measured stands in no prose."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feddst.core.metric import Metric
from feddst.studies.reproduce import Record
from feddst.studies.reproduce.record import Maker, Point, RecordedRow, RecordedRun, save_record
from scripts.tables.accuracy import accuracies, accuracies_besides, between, differences
from scripts.tables.benches import BENCHES, bench_page
from scripts.tables.blocks import BUILDERS, block, filled, outside, pages
from scripts.tables.paper import leads, options_apart, readings, sweeps, took
from scripts.tables.records import ROOT, made_by, study

WRITTEN = [path.relative_to(ROOT).as_posix() for path in pages()]
MEASURED = re.compile(r"\d ± \d|[+−]\d+\.\d+ \[")
"""A mean with its spread, or a difference with its interval."""
MADE = {f"docs/{name}.md" for name in BENCHES}
"""Pages that a program writes as a whole."""


@pytest.mark.parametrize("page", WRITTEN)
def test_tables_are_up_to_date(page: str) -> None:
    text = (ROOT / page).read_text()
    assert filled(ROOT / page, text) == text, "run `make docs-tables`"


@pytest.mark.parametrize("name", BENCHES)
def test_pages_of_benches_are_up_to_date(name: str) -> None:
    assert (ROOT / f"docs/{name}.md").read_text() == bench_page(name), "run `make docs-tables`"


@pytest.mark.parametrize("page", [page for page in WRITTEN if page not in MADE])
def test_what_is_measured_stands_in_tables(page: str) -> None:
    assert MEASURED.findall(outside((ROOT / page).read_text())) == []


# The blocks themselves.


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.tables.blocks.BUILDERS", dict(BUILDERS))

    @block
    def greeting(*names: str) -> str:
        return f"Hello, {' and '.join(names)}: [record](results/quick.json), [site](https://example.org)"

    monkeypatch.setitem(BUILDERS, "greeting", greeting)


PAGE = """before
<!-- record: greeting Ada "Grace Hopper" -->
whatever
stood here
<!-- end -->
after
"""


@pytest.mark.usefixtures("greeting")
@pytest.mark.parametrize(("page", "up"), [("README.md", ""), ("docs/index.md", "../")])
def test_a_block_is_written_by_its_function(page: str, up: str) -> None:
    made = filled(ROOT / page, PAGE)
    links = f"[record]({up}results/quick.json), [site](https://example.org)"
    assert made == (
        'before\n<!-- record: greeting Ada "Grace Hopper" -->\n\n'
        f"Hello, Ada and Grace Hopper: {links}\n\n<!-- end -->\nafter\n"
    )
    assert filled(ROOT / page, made) == made
    assert outside(made) == "before\n\nafter\n"


def test_a_block_that_nobody_writes_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"a block is accuracies, .*, not nonsense"):
        filled(Path(ROOT / "README.md"), "<!-- record: nonsense -->\n<!-- end -->\n")


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("feddst reproduce table1 --engine.kind stacked --engine.device cuda", "feddst reproduce table1"),
        ("feddst study a.toml --rows b --engine.workers 1; feddst study a.toml --rows c", "feddst study a.toml"),
        ("feddst study a.toml --seeds 3; feddst study a.toml --seeds 3 --rows c", "feddst study a.toml --seeds 3"),
        (
            "feddst reproduce alpha --rows a --on cifar10; feddst reproduce alpha --rows b --on cifar10",
            "feddst reproduce alpha --on cifar10",
        ),
        (
            "feddst reproduce table2 --data.dataset folder --data.root my.tar --engine.device cuda",
            "feddst reproduce table2 --data.dataset folder --data.root my.tar",
        ),
        (
            "feddst reproduce table2 --data.root data/cifar10 --engine.precision float32",
            "feddst reproduce table2 --engine.precision float32",
        ),
        ("feddst bench cpu --turns 3", "make bench-cpu ARGS='--turns 3'"),
        ("python scripts/slow_network.py", "python -m benchmarks.flower.slow_network"),
    ],
)
def test_a_records_command_in_short(command: str, short: str) -> None:
    assert made_by(command) == f"`{short}`"


def test_a_record_of_two_kinds_of_command_names_both() -> None:
    command = "feddst reproduce alpha --seeds 3 --rows a; feddst reproduce alpha --seeds 3; feddst reproduce table2"
    assert made_by(command) == "`feddst reproduce alpha --seeds 3` and `feddst reproduce table2`"


# Records that are not whole yet.

CURVE = {0.5: 10.0, 1.0: 30.0, 1.5: 40.0, 2.0: 50.0}
"""The accuracy [%] of a run after so many GiB: 30 under 1 GiB, 50 under 2."""


def run(seed: int, plus: float = 0.0, to: float = 2.0) -> RecordedRun:
    """A run with that curve, so many points higher, which has come to `to` GiB; at 2 GiB it has ended."""
    points = [
        Point(number, (accuracy + plus) / 100, None, None, int(sent * 2**30), 0, 0, float(number))
        for number, (sent, accuracy) in enumerate(CURVE.items(), 1)
        if sent <= to
    ]
    ended = to == 2.0
    return RecordedRun("", seed, tuple(points), Path(f"{seed}"), "measured", 2.0 * ended, "cap" * ended)


def save(folder: Path, rows: dict[str, list[RecordedRun]], command: str = "feddst reproduce", **about: Any) -> None:
    """A record of three seeds, 1 and 2 GiB, with these runs, in which every row is titled as it is named."""
    made = (Maker(command, "CPU", "2", 60.0),)
    kept = tuple(RecordedRow(name, name.upper(), None, {}, tuple(runs)) for name, runs in rows.items())
    record = Record("sweep", "paper", "digits", command, made, 3, (1.0, 2.0), "measured", kept)
    folder.mkdir(exist_ok=True)
    save_record(replace(record, **about), folder)
    study.cache_clear()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for module in ("records", "paper"):
        monkeypatch.setattr(f"scripts.tables.{module}.RESULTS", tmp_path)
    study.cache_clear()
    yield tmp_path
    study.cache_clear()


def lines(made: str) -> dict[str, list[str]]:
    """A table's cells by the first of each line."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in made.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in cells if set(first) != {"-"}}


def test_a_sweep_shows_each_row_that_is_begun_and_how_far_it_is(results: Path) -> None:
    usual = [run(seed) for seed in range(3)]
    save(results / "sparsity-cifar10", {"s1": [], "s2": usual, "s3": []}, usual="s2")
    table = sweeps("cifar10")
    assert lines(table) == {
        "FedDST with": ["1 GiB", "1 GiB, minus the bold", "rounds under 1 GiB"],
        "**S2**": ["30.00 ± 0.00", "–", "2"],
    }
    assert "Not begun: S1, S3, the sweep over α, the sweep over E_p." in table
    # A run at 1.5 GiB has settled at 1 GiB; the mean gain there is that of its one seed.
    save(results / "sparsity-cifar10", {"s1": [run(0, plus=5, to=1.5)], "s2": usual, "s3": []}, usual="s2")
    table = sweeps("cifar10")
    assert lines(table)["S1 (to 1.5 GiB, 1 of 3 seeds)"] == ["35.00†", "+5.00 (one seed)", "2"]
    assert "Not begun: S3, the sweep over α, the sweep over E_p." in table
    # Whole rows have every cap, and a sweep of which there is a record is there.
    whole = [run(seed, plus=5) for seed in range(3)]
    save(results / "sparsity-cifar10", {"s1": whole, "s2": usual, "s3": []}, usual="s2")
    save(results / "alpha-cifar10", {"a1": usual, "a2": [run(0, plus=-1)]}, usual="a1")
    table = sweeps("cifar10")
    assert lines(table)["S1"] == ["35.00 ± 0.00", "+5.00 [5.00, 5.00]", "55.00 ± 0.00", "+5.00 [5.00, 5.00]", "2"]
    assert lines(table)["A2 (to 2 GiB, 1 of 3 seeds)"][2:4] == ["49.00†", "−1.00 (one seed)"]
    assert "Not begun: S3, the sweep over E_p." in table


def test_a_table_shows_each_row_and_reading_that_is_begun(results: Path) -> None:
    about: dict[str, Any] = {"target": "table2", "caps": (1.0, 4.0)}
    text = {"feddst": [run(seed, to=1.5) for seed in range(3)], "randommask": [], "fedavgm": []}
    save(results / "mine", text, **about)
    table = readings("mine")
    assert lines(table) == {
        "": ["1 GiB", "4 GiB"],
        "FEDDST, paper's text (to 1.5 GiB)": ["30.00 ± 0.00", "–"],
        "FEDDST, reported": ["–", "35.41 ± 1.10"],  # Table 2 of the paper, 4 GiB
    }
    assert "Not begun, paper's text: RANDOMMASK, FEDAVGM. Not begun: the published code." in table
    ahead = [run(seed, plus=3, to=1.5) for seed in range(2)]
    code = {"feddst": ahead, "randommask": [run(0)], "fedavgm": [], "fedavgm-still": [run(0), run(1)]}
    save(results / "mine-published", code, **about, reading="published", seeds=2)
    table = readings("mine")
    assert list(lines(table)) == [
        "",
        "FEDDST, paper's text (to 1.5 GiB)",
        "FEDDST, published code (to 1.5 GiB)",
        "RANDOMMASK, published code (to 2 GiB, 1 of 2 seeds)",
        "FEDAVGM-STILL, published code (to 2 GiB)",
        "FEDDST, reported",
        "RANDOMMASK, reported",
        "FEDAVGM, reported",
    ]
    assert "over 3 seeds (paper's text) and 2 seeds (published code)" in table
    # So are all pairs with a seed in common: none as the paper's text has it, which has one row.
    assert lines(differences("mine")) == {
        "difference": ["1 GiB", "4 GiB"],
        "FEDDST − RANDOMMASK, published code": ["+3.00 (one seed)", "–"],
        "FEDDST − FEDAVGM-STILL, published code": ["+3.00 [3.00, 3.00]", "–"],
    }


def test_a_difference_over_fewer_seeds_says_so(results: Path) -> None:
    one, other = [run(seed) for seed in range(3)], [run(seed, plus=-2) for seed in range(2)]
    save(results / "mine", {"one": one, "two": other, "three": one, "four": [run(0)]}, usual="one")
    table = differences("mine", "one/two", "one/three", "one/four")
    assert "over 3 seeds" in table
    assert [line[0] for line in lines(table).values()][1:] == [
        "+2.00 [2.00, 2.00] (2 seeds)",
        "+0.00 [0.00, 0.00]",
        "+0.00 (one seed)",
    ]
    assert "over 2 seeds" in differences("mine", "one/two")


def test_a_record_can_be_read_under_other_caps(results: Path) -> None:
    save(results / "mine", {"one": [run(seed, to=1.5) for seed in range(3)]})
    assert lines(accuracies("mine"))["ONE (to 1.5 GiB)"] == ["30.00 ± 0.00", "–"]
    table = accuracies("mine@0.5,1.4")
    assert lines(table) == {"": ["0.5 GiB", "1.4 GiB"], "ONE": ["10.00 ± 0.00", "30.00 ± 0.00"]}
    assert "(results/mine/record.json)" in table


def test_a_record_by_perplexity_has_accuracies_besides(results: Path) -> None:
    perplexity = Metric("perplexity", higher_is_better=False)

    def read(seed: int, plus: float) -> RecordedRun:
        found = {0.5: (24.0, 0.2), 0.9: (12.0, 0.3), 1.0: (13.0, 0.4), 2.0: (8.0, 0.5)}  # GiB: perplexity, accuracy
        points = [
            Point(i, score + plus, None, None, int(sent * 2**30), 0, 0, 1.0, perplexity, {"accuracy": accuracy})
            for i, (sent, (score, accuracy)) in enumerate(found.items(), 1)
        ]
        return RecordedRun("", seed, tuple(points), Path(f"{seed}"), "measured", 2.0, "cap")

    rows = {"one": [read(seed, 0.0) for seed in range(3)], "two": [read(seed, 1.5) for seed in range(3)]}
    save(results / "mine", rows, target="study", compared=(("one", "two"),))
    table = accuracies("mine")
    assert lines(table)["ONE"] == ["12 ± 0", "8 ± 0"]
    assert "digits: best mean client perplexity under caps" in table
    table = accuracies_besides("mine")
    assert lines(table)["TWO"] == ["30.00 ± 0.00", "50.00 ± 0.00"]
    assert "mean client accuracy [%] where the perplexity is best under caps" in table
    table = differences("mine", "one/two")
    assert lines(table)["ONE" if "ONE" in lines(table) else "ONE − TWO"] == ["−1.5 [−1.5, −1.5]"] * 2
    assert "Differences in perplexity, of which less is better, on the same seeds" in table


def test_a_row_of_the_paper_that_ended_after_some_rounds_says_where(results: Path) -> None:
    short = [replace(run(seed, to=1.5), stopped_by="rounds") for seed in range(3)]
    save(results / "mine", {"one": short})
    assert lines(accuracies("mine"))["ONE (to 1.5 GiB)"] == ["30.00 ± 0.00", "–"]
    save(results / "mine", {"one": short}, target="study")
    assert lines(accuracies("mine"))["ONE"] == ["30.00 ± 0.00", "40.00 ± 0.00*"]


def test_two_copies_are_set_against_each_other_reading_by_reading(results: Path) -> None:
    def rows(plus: float) -> dict[str, list[RecordedRun]]:
        return {"one": [run(seed, plus=plus) for seed in range(3)], "two": []}

    save(results / "copy-paper", rows(0))
    save(results / "copy-published", rows(0), reading="published")
    save(results / "mine", rows(2))
    assert lines(between("mine", "copy"))["ONE"] == ["+2.00 [2.00, 2.00]"] * 2
    save(results / "mine-published", rows(3), reading="published")
    assert lines(between("mine", "copy")) == {
        "": ["1 GiB", "2 GiB"],
        "ONE, paper's text": ["+2.00 [2.00, 2.00]"] * 2,
        "ONE, published code": ["+3.00 [3.00, 3.00]"] * 2,
    }


def test_what_a_record_has_from_another_is_counted_once(results: Path) -> None:
    usual = [run(seed) for seed in range(3)]
    save(results / "table2-mine", {"feddst": usual}, command="a")
    save(results / "alpha-mine", {"a1": usual, "a2": [run(0, plus=1)]}, command="b")
    save(results / "compatibility-mine", {"feddst": usual}, command="a")
    assert lines(took()) == {
        "record": ["rows", "seeds", "time", "on"],
        "[table2-mine](results/table2-mine/record.json)": ["1", "3", "1 min 00 s", "CPU"],
        "[alpha-mine](results/alpha-mine/record.json)": ["1", "3", "1 min 00 s", "CPU"],
    }


def test_leads_have_the_papers_below_them(results: Path) -> None:
    rows = {"feddst": [run(seed, plus=4) for seed in range(3)], "fedavgm-still": [run(seed) for seed in range(3)]}
    save(results / "mine", rows, target="table1")
    # Table 1 of the paper: FedDST 96.10 and 97.35, FedAvgM 85.25 and 96.32.
    assert list(lines(leads("mine", "feddst/fedavgm-still")).values())[1:] == [
        ["+4.00 [4.00, 4.00]", "+4.00 [4.00, 4.00]"],
        ["+10.85", "+1.03"],
    ]


def test_options_in_which_rows_differ(results: Path) -> None:
    save(results / "mine", {"one": [run(0)], "two": [run(0)]})
    record = study("mine")
    configs = ({"alpha": 0.1, "level": 0.8}, {"alpha": 0.2, "level": 0.8, "mu": 1.0})
    rows = tuple(replace(row, config=config) for row, config in zip(record.rows, configs, strict=True))
    save_record(replace(record, rows=rows), results / "mine")
    study.cache_clear()
    assert lines(options_apart("mine", "one", "two")) == {
        "option": ["ONE", "TWO"],
        "`alpha`": ["0.1", "0.2"],
        "`mu`": ["–", "1.0"],
    }
