"""Runs on disk that nobody trained: rows and details are made up, so that a report can be checked by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feddst.options import updated
from feddst.runtime import Row, RunConfig
from feddst.runtime.details import Detail, LayerLife, PixelMap
from feddst.runtime.metrics import summarise
from feddst.runtime.storage import RunDirectory

MIB = 2**20

MakeRun = Callable[..., Path]


def row(number: int, accuracy: float | None, mib: float = 1.0) -> Row:
    """A round that sent `mib` up: a tenth of it masks, a twentieth headers; twice as much went down."""
    sent = round(number * mib * MIB)
    return Row(
        round=number,
        score=accuracy,
        score_worst=None if accuracy is None else accuracy / 2,
        score_global=accuracy,
        score_personal=None,
        loss=1.0,
        train_loss=1.0,
        density=0.2,
        entered=0,
        left=0,
        clients=2,
        refused=0,
        upload_bytes=sent,
        upload_mask_bytes=sent // 10,
        download_bytes=2 * sent,
        download_mask_bytes=sent // 10,
        upload_bits=4 * sent,
        download_bits=8 * sent,
        flops_dense=number * 10**10,
        flops_sparse=number * 10**9,
        seconds=1.0,
        upload_header_bytes=sent // 20,
        download_header_bytes=sent // 20,
    )


def detail(number: int, entered: int = 0, apart: float | None = None) -> Detail:
    """An evaluated round with two layers, of which the second never moves."""
    layers = (LayerLife("fc1.weight", 100, 20, entered, entered, apart), LayerLife("fc2.weight", 10, 10, 0, 0))
    shares = tuple(tuple((x + y + number) % 40 / 40 for x in range(4)) for y in range(3))
    counts = [0] * 20
    counts[number % 20], counts[19] = 3, 1
    return Detail(number, layers, tuple(counts), PixelMap("fc1.weight", shares))


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run's directory: `make_run("a", [0.1, None, 0.5], method="fedavgm", seed=1)`."""

    def make(
        name: str,
        scores: Sequence[float | None],
        details: Sequence[Detail] = (),
        finished: bool = True,
        mib: float = 1.0,
        **options: Any,
    ) -> Path:
        directory = RunDirectory(tmp_path / name)
        named = {option.replace("__", "."): value for option, value in options.items()}
        directory.create(updated(RunConfig(), named))
        rows = [row(number, score, mib) for number, score in enumerate(scores, 1)]
        kept = {each.round: each for each in details}
        for each in rows:
            directory.append(each, kept.get(each.round))
        if finished:
            directory.finish(replace(summarise(rows, "rounds")))
        return directory.path

    return make


@pytest.fixture
def comparison(make_run: MakeRun, tmp_path: Path) -> Path:
    """Three methods with two seeds each below one directory; one run is not finished, one method kept no details."""
    for seed in (0, 1):
        shift = seed / 10
        make_run(f"all/fedavgm-seed{seed}", [0.1, 0.2 + shift, 0.3 + shift], method="fedavgm", seed=seed, mib=5.0)
        details = [detail(number, entered=2 * number, apart=0.1) for number in (1, 2, 3, 4)]
        scores = [0.2, 0.4 + shift, 0.7, 0.8 + shift]
        make_run(f"all/feddst-seed{seed}", scores, details, method="feddst", seed=seed, finished=seed == 0)
        still = [detail(number) for number in (1, 2, 3, 4)]
        make_run(f"all/randommask-seed{seed}", [0.2, 0.5, 0.6, 0.7], still, method="randommask", seed=seed)
    return tmp_path / "all"
