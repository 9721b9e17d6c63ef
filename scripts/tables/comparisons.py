"""Comparisons, of which a record holds the curves: their tables as `feddst compare` itself writes them."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from feddst.runtime.config import stored_options
from feddst.runtime.metrics import SCORES, Row
from feddst.studies.comparison import CompareConfig, Comparison, Curve
from feddst.studies.tables import caption, notes, table
from scripts.tables.blocks import block
from scripts.tables.records import bench, with_caption


@block
def compared(name: str) -> str:
    """The table of a comparison."""
    made = comparison(name)
    return with_caption(
        table(made),
        caption(made),
        *(f"{note}." for note in notes(made)),
        f"From the [record](results/{name}.json).",
    )


def comparison(name: str) -> Comparison:
    """What the `comparison.json` of `feddst compare` held, of which this record is a copy."""
    content = bench(name)
    base = stored_options(content["config"]["base"])
    methods, seeds, caps = (tuple(content["config"][key]) for key in ("methods", "seeds", "caps"))
    config = CompareConfig(methods, seeds, caps, base)
    curves = []
    for curve in content["curves"]:
        ended_by_cap = not base.rounds or curve["round"][-1] < base.rounds
        rows = tuple(_row_of(curve, i) for i in range(len(curve["round"])))
        curves.append(Curve(curve["label"], curve["seed"], rows, Path(), base.accounting, base.cap_gib * ended_by_cap))
    return Comparison(config, tuple(curves), Path(), content["finished"], content["data"])


def _row_of(curve: Mapping[str, Any], index: int) -> Row:
    """A row of the columns that are there; what is not stays empty, and no table or picture asks for it."""
    known = {name: column[index] for name, column in curve.items() if isinstance(column, list)}
    needed = (one.name for one in fields(Row) if one.default is MISSING and one.default_factory is MISSING)
    counts = dict.fromkeys((name for name in needed if name not in SCORES.values()), 0)
    return Row.from_dict({**counts, **{f"accuracy{kind}": None for kind in SCORES}, **known})
