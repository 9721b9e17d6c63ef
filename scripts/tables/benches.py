"""The pages of the benches, which are made as a whole from their records."""

import copy
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import benchmarks.cpu.tables
import benchmarks.gpu.tables
import benchmarks.scale.tables
import benchmarks.wire.tables
from benchmarks.cpu.measure import CpuRecord
from benchmarks.gpu.measure import GpuBench, GpuRecord
from benchmarks.scale.measure import ScaleRecord
from benchmarks.wire.measure import WireRecord
from scripts.tables.records import bench

T = TypeVar("T")


def bench_page(name: str) -> str:
    """A page with all tables of a bench."""
    return BENCHES[name]() + f"\nThe record: [results/{name}.json](../results/{name}.json).\n"


def _revived(kind: Any, value: Any) -> Any:
    """A value from JSON, as its original type; entries that are not fields follow from others."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: _revived(hints[f.name], value[f.name]) for f in fields(kind) if f.name in value})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if value is None or origin is None:
        return value
    if origin in (types.UnionType, typing.Union):
        return _revived(next(one for one in inner if one is not types.NoneType), value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(_revived(one, each) for one, each in zip(kinds, value, strict=True))
    return value


def _record_of(kind: type[T], content: Mapping[str, Any], **others: Any) -> T:
    found: T = _revived(kind, {**content, **others})
    return found


def _cpu_page() -> str:
    about = bench("cpu-bench")
    return benchmarks.cpu.tables.markdown(_record_of(CpuRecord, about, gemm=about["gemm_gflops"]), about)


def _gpu_page() -> str:
    about = bench("gpu-bench")
    repeats = {len(step["laps"]) for step in about["steps"]}
    shape = GpuBench(models=about["models"], precision=about["precision"], repeats=max(repeats))
    others = {"bench": {}, "gpu": about["machine"]["gpu"], "gemm": about["gemm_tflops"], "rows": about["steps"]}
    return benchmarks.gpu.tables.markdown(replace(_record_of(GpuRecord, about, **others), bench=shape), about)


def _wire_page() -> str:
    about = bench("wire-bench")
    return benchmarks.wire.tables.markdown(_record_of(WireRecord, about), about)


def _scale_page() -> str:
    about = copy.deepcopy(bench("scale-bench"))
    for row in about["rows"] + about["updates"]:
        row["case"] = {**row, "level": about["level"], "seed": 0, "rounds": 0}
    for row in about["rows"]:
        row["laps"] = [row["seconds"]]
    return benchmarks.scale.tables.markdown(_record_of(ScaleRecord, about, sums=about["updates"]), about)


BENCHES: dict[str, Callable[[], str]] = {
    "cpu-bench": _cpu_page,
    "gpu-bench": _gpu_page,
    "scale-bench": _scale_page,
    "wire-bench": _wire_page,
}
