"""Every table of docs/choosing.md, cell by cell, and every difference in its text, from the records it names."""

import json
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from feddst.runtime.presets import SWEEPS
from feddst.studies.reproduce import Record, load_record
from feddst.studies.reproduce.paired import pairs
from feddst.studies.reproduce.table import cell, difference

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/choosing.md").read_text()
SEEDS = 5
"""How many seeds the sweeps have; tables that put several records side by side take no others."""

Body = dict[str, list[str]]
"""The rows of a table by their first cell."""


@dataclass(frozen=True)
class Section:
    """A part of the page under its heading, with the tables in it."""

    heading: str
    text: str

    @property
    def records(self) -> list[str]:
        """The records it links to."""
        return re.findall(r"\]\(\.\./(results/[^)]+\.json)\)", self.text)

    @property
    def tables(self) -> list[Body]:
        """Its tables, without their heads."""
        blocks = re.findall(r"(?:^\|.*\n)+", self.text, re.MULTILINE)
        lines = ([line.strip("|\n").split("|") for line in block.splitlines()[2:]] for block in blocks)
        return [{words[0].strip(): [word.strip() for word in words[1:]] for words in table} for table in lines]


def sections() -> list[Section]:
    """The parts of the page."""
    parts = re.split(r"^## ", PAGE + "\n", flags=re.MULTILINE)[1:]
    return [Section(heading, text) for heading, _, text in (part.partition("\n") for part in parts)]


@cache
def record(name: str) -> Record:
    return load_record(ROOT / "results" / name)


@cache
def bench(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / f"results/{name}.json").read_text())
    return content


def under_caps(name: str, rows: dict[str, str] | None = None) -> Body:
    """The rows of a reproduction by title, or those that are named, under its caps."""
    found = record(name)
    titles = {row.name: row.title for row in found.rows} if rows is None else rows
    return {
        titles[row.name]: [str(cell(found, row, cap)) for cap in found.caps] for row in found.rows if row.name in titles
    }


def by_rounds() -> Body:
    """The best accuracy up to some rounds, the same seeds for all; a run that ended before has nothing to say."""
    dense, sparse = record("table1-paper").row("fedavgm"), record("sparsity-mnist").rows
    assert dense is not None
    rows = {"dense (FedAvgM)": dense, **{row.title: row for row in sparse}}
    body: Body = {}
    for title, row in rows.items():
        runs = [run for run in row.runs if run.seed < SEEDS]
        assert len(runs) == SEEDS
        body[title] = []
        for last in (50, 100, 200, 400):
            if min(run.rows[-1].round for run in runs) < last:
                body[title].append("–")
                continue
            best = [100 * max(point.accuracy for point in run.rows if point.round <= last) for run in runs]
            body[title].append(f"{statistics.mean(best):.2f} ± {statistics.stdev(best):.2f}")
    return body


def by_codec() -> Body:
    """Bytes of an update of the MNIST network at each sparsity."""
    body: Body = {}
    for row in bench("wire-bench")["values"]:
        if row["network"] == "mnist-cnn":
            name = row["codec"] + (" deflate" if row["packing"] == "deflate" else "")
            body.setdefault(f"`{name}`", []).append(f"{row['sizes']['payload']:,}")
    return body


def rounded() -> Body:
    """What a hundred rounds reach with each codec, and the bytes they send, by seed."""
    body: Body = {}
    for name, codec in {"feddst": "float32", "feddst-q4": "q4", "feddst-q2": "q2"}.items():
        found = bench(f"mnist-100-rounds/{name}")
        sent = statistics.mean(curve[-1]["upload_bytes"] for curve in found["curves"].values()) / 2**20
        best = f"{statistics.mean(found['best']):.1f} ± {statistics.stdev(found['best']):.1f}"
        after = f"{found['mean']:.1f} ± {found['std']:.1f}"
        body[f"`{codec}`"] = [f"{len(found['seeds'])}", after, best, f"{sent:.1f}"]
    return body


def by_seconds() -> Body:
    """Seconds of a round on a CPU, for each sparsity, with the engine's ways."""
    body: Body = {}
    for row in bench("cpu-bench")["rounds"]:
        if row["case"]["distribution"] == "erk":
            name = "PyTorch, dense" if row["runner"] == "PyTorch" else f"native, S = {row['case']['level']:g}"
            name = name.replace("S = 0", "dense") if name.endswith(" 0") else name
            again = row["readjusting"]
            told = [f"{row['ordinary']['median']:.3f}", "–" if again is None else f"{again['median']:.3f}"]
            body.setdefault(name, []).extend(told)
    return body


def by_step() -> Body:
    """Milliseconds of a step of 200 models with 32 images each on a GPU, of the MNIST and the CIFAR-10 network."""
    names = {
        "feddst": "stacked",
        "single": "one model after another",
        "vmap": "vmap",
        "grouped": "grouped convolutions",
    }
    body: Body = {name: [] for name in names.values()}
    for step in bench("gpu-bench")["steps"] + bench("gpu-bench-cifar10")["steps"]:
        if step["images"] == 32:
            body[names[step["runner"]]].append(f"{1000 * step['median']:.2f}")
    return body


METHODS = {"fedavgm": "FedAvgM", "fedavgm-bfloat16": "FedAvgM bfloat16", "randommask": "RandomMask", "feddst": "FedDST"}

TABLES: dict[str, list[Callable[[], Body]]] = {
    "Sparse at all?": [lambda: under_caps("table1-paper", METHODS), lambda: under_caps("table2-paper", METHODS)],
    "Sparsity, when bytes count": [lambda: under_caps("sparsity-mnist")],
    "When rounds count, not bytes": [by_rounds],
    "α": [lambda: under_caps("alpha-mnist")],
    "E_p": [lambda: under_caps("schedule-mnist")],
    "The codec of updates": [by_codec, rounded],
    "When compute is scarce": [by_seconds],
    "The engine": [by_step],
}
"""What the tables of each section must hold."""


def test_every_table_is_checked() -> None:
    assert {section.heading for section in sections() if section.tables} == set(TABLES)


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.heading)
def test_tables_are_those_of_the_records(section: Section) -> None:
    assert section.tables == [expected() for expected in TABLES.get(section.heading, [])]


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.heading)
def test_caps_are_those_of_the_records(section: Section) -> None:
    heads = [head for head in re.findall(r"^\|(.*)\|\n\|---", section.text, re.MULTILINE) if "GiB" in head]
    caps = [load_record((ROOT / path).parent).caps for path in section.records if path.endswith("record.json")]
    for head, expected in zip(heads, caps, strict=bool(heads)):
        assert head.split("|")[1:] == [f" {cap:g} GiB " for cap in expected]


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.heading)
def test_records_are_named_with_the_command_that_makes_them(section: Section, today: Callable[[str], str]) -> None:
    assert bool(section.records) == bool(section.tables)
    for path in section.records:
        command = today(json.loads((ROOT / path).read_text())["command"])
        assert f"`{command}`" in re.sub(r"\s+", " ", PAGE), path


def differences(path: str) -> set[str]:
    """All differences that a record's own report gives, as words."""
    if not path.endswith("record.json"):
        return set()
    found = load_record((ROOT / path).parent)
    return {str(difference(found, *pair, cap)) for pair in pairs(found) for cap in found.caps}


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.heading)
def test_figures_in_the_text_are_differences_or_settings(section: Section) -> None:
    text = re.sub(r"^\|.*\n|`[^`]*`", "", re.sub(r"```.*?```", "", section.text, flags=re.DOTALL), flags=re.MULTILINE)
    text = re.sub(r"\s+", " ", text)
    told = re.findall(r"[+−]\d+\.\d+ \[−?\d+\.\d+, −?\d+\.\d+\]", text)
    known: set[str] = set().union(*map(differences, section.records))
    assert set(told) <= known
    for words in told:
        text = text.replace(words, "")
    settings = {f"{value:g}" for sweep in SWEEPS for value in sweep.values}
    assert set(re.findall(r"\d+\.\d+", text)) <= settings
