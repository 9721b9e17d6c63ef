"""Pages, tables and pictures that a program writes are what it writes today from the committed records."""

import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

import benchmarks.cpu.tables
import benchmarks.gpu.tables
import benchmarks.scale.tables
import benchmarks.wire.tables
from benchmarks.cpu.measure import CpuRecord
from benchmarks.flower import slow_network
from benchmarks.gpu.measure import GpuBench, GpuRecord
from benchmarks.scale.measure import ScaleRecord
from benchmarks.wire.measure import WireRecord
from feddst.methods import METHODS
from feddst.runtime.config import stored_options
from feddst.runtime.metrics import Row
from feddst.runtime.old_names import METHODS as CROSSED
from feddst.studies.comparison import CompareConfig, Comparison, Curve
from feddst.studies.plots import accuracy_against_upload
from feddst.studies.reproduce import load_record
from feddst.studies.reproduce.carry_out import write_reports
from feddst.studies.tables import caption, escaped, notes, pipes, table

ROOT = Path(__file__).parents[2]
MOST = 0.0005
"""The share of a picture's pixels that may differ: another version of matplotlib may draw a letter differently."""

T = TypeVar("T")


@pytest.fixture(autouse=True)
def usual_style() -> Iterator[None]:
    """Matplotlib as it is in a new process, whatever was drawn before in this one."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / f"results/{name}.json").read_text())
    return content


def revived(kind: Any, value: Any) -> Any:
    """What was written as JSON, as the type that it was; entries that are no fields follow from others."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: revived(hints[f.name], value[f.name]) for f in fields(kind) if f.name in value})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if value is None or origin is None:
        return value
    if origin in (types.UnionType, typing.Union):
        return revived(next(one for one in inner if one is not types.NoneType), value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(revived(one, each) for one, each in zip(kinds, value, strict=True))
    return value


def record_of(kind: type[T], content: Mapping[str, Any], **others: Any) -> T:
    found: T = revived(kind, {**content, **others})
    return found


def cpu_page() -> str:
    about = read("cpu-bench")
    return benchmarks.cpu.tables.markdown(record_of(CpuRecord, about, gemm=about["gemm_gflops"]), about)


def gpu_page() -> str:
    about = read("gpu-bench")
    repeats = {len(step["laps"]) for step in about["steps"]}
    bench = GpuBench(models=about["models"], precision=about["precision"], repeats=max(repeats))
    others = {"bench": {}, "gpu": about["machine"]["gpu"], "gemm": about["gemm_tflops"], "rows": about["steps"]}
    return benchmarks.gpu.tables.markdown(replace(record_of(GpuRecord, about, **others), bench=bench), about)


def wire_page() -> str:
    about = read("wire-bench")
    return benchmarks.wire.tables.markdown(record_of(WireRecord, about), about)


def scale_page() -> str:
    about = read("scale-bench")
    for row in about["rows"] + about["updates"]:
        row["case"] = {**row, "level": about["level"], "seed": 0, "rounds": 0}
    for row in about["rows"]:
        row["laps"] = [row["seconds"]]
    return benchmarks.scale.tables.markdown(record_of(ScaleRecord, about, sums=about["updates"]), about)


PAGES = {"cpu-bench": cpu_page, "gpu-bench": gpu_page, "scale-bench": scale_page, "wire-bench": wire_page}


@pytest.mark.parametrize("name", PAGES)
def test_pages_of_benches(name: str) -> None:
    whole = PAGES[name]() + f"\nThe record: [results/{name}.json](../results/{name}.json).\n"
    assert (ROOT / f"docs/{name}.md").read_text() == whole


REPRODUCTIONS = sorted(path.parent.name for path in ROOT.glob("results/*/record.json"))


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_tables_and_pictures_of_reproductions(name: str, tmp_path: Path) -> None:
    here = ROOT / "results" / name
    write_reports(load_record(here), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in here.iterdir()}
    for path in tmp_path.iterdir():
        if path.suffix == ".png":
            alike(path, here / path.name)
        else:
            assert path.read_text() == (here / path.name).read_text()


def alike(one: Path, other: Path) -> None:
    """Two pictures look the same."""
    pixels, others = imread(one), imread(other)
    assert pixels.shape == others.shape
    assert np.any(np.abs(pixels - others) > 0.1, axis=-1).mean() <= MOST, other


def comparison(name: str) -> Comparison:
    """What `comparison.json` holds."""
    content = read(name)
    base = stored_options(content["config"]["base"])
    methods, seeds, caps = (tuple(content["config"][key]) for key in ("methods", "seeds", "caps"))
    config = CompareConfig(methods, seeds, caps, base)
    curves = []
    for curve in content["curves"]:
        ended_by_cap = not base.rounds or curve["round"][-1] < base.rounds
        rows = tuple(row_of(curve, i) for i in range(len(curve["round"])))
        curves.append(Curve(curve["label"], curve["seed"], rows, Path(), base.accounting, base.cap_gib * ended_by_cap))
    return Comparison(config, tuple(curves), Path(), content["finished"], content["data"])


def row_of(curve: Mapping[str, Any], index: int) -> Row:
    """A row of the columns that are there; what is not stays empty, and no table or picture asks for it."""
    known = {f.name: curve[f.name][index] for f in fields(Row) if f.name in curve}
    rest: dict[str, Any] = {f.name: 0 for f in fields(Row) if f.name not in known}
    return Row(**known, **rest | {"accuracy_personal": None})


def test_the_table_of_all_methods() -> None:
    made = comparison("methods")
    shown = "\n\n".join([caption(made), pipes(table(made)), *escaped(notes(made))])
    assert shown in (ROOT / "docs/methods.md").read_text()
    assert {*METHODS, *CROSSED} == {label.partition(":")[0] for label in made.config.methods}


@pytest.mark.parametrize("name", ["quick", "methods"])
def test_pictures_of_comparisons(name: str, tmp_path: Path) -> None:
    accuracy_against_upload(comparison(name), tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / f"docs/{name}.png")


def test_the_picture_of_slow_links(tmp_path: Path) -> None:
    slow_network.draw(read("slow-network"), tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / "docs/slow-network.png")


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_the_picture_of_thrift(data: str, tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    script_named("draw_thrift").draw(data, tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / f"docs/thrift-{data}.png")


def test_the_picture_of_growth(tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    script_named("draw_growth").draw(tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / "docs/growth.png")


def test_the_picture_of_the_life_of_masks(tmp_path: Path, script_named: Callable[[str], ModuleType]) -> None:
    script_named("mask_life").draw(read("mask-life"), tmp_path / "made.png")
    alike(tmp_path / "made.png", ROOT / "docs/mask-life.png")
