"""How long it takes to test a network on all test images."""

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from benchmarks.cpu.jobs import Case, CpuJob
from feddst.engines import Engine, EvalTask, make_engine
from feddst.engines.select import EngineConfig
from feddst.stopwatch import Timing


@dataclass(frozen=True)
class EvaluationRow:
    """One network's test on so many images, with either engine."""

    job: str
    case: Case
    images: int
    native: Timing
    reference: Timing

    @property
    def ratio(self) -> float:
        """How many times as long the reference engine takes."""
        return self.reference.median / self.native.median


def evaluation_rows(job: CpuJob, cases: Sequence[Case], turns: int, workers: int) -> list[EvaluationRow]:
    """Both engines' tests of each network, in turn, after one that is not timed."""
    with (
        closing(_engine(job, EngineConfig("native", workers=workers))) as native,
        closing(_engine(job, EngineConfig("reference", workers=workers))) as reference,
    ):
        return [_row(job, case, turns, native, reference) for case in cases]


def _row(job: CpuJob, case: Case, turns: int, native: Engine, reference: Engine) -> EvaluationRow:
    state = job.initial(case)
    task = EvalTask(state.params, state.buffers)
    seconds = [(_seconds(native, task), _seconds(reference, task)) for _ in range(1 + turns)][1:]
    ours, theirs = (Timing(statistics.median(some), min(some), turns) for some in zip(*seconds, strict=True))
    return EvaluationRow(job.name, case, len(job.federation.dataset.test_labels), ours, theirs)


def _seconds(engine: Engine, task: EvalTask) -> float:
    began = time.perf_counter()
    engine.evaluate([task])
    return time.perf_counter() - began


def _engine(job: CpuJob, config: EngineConfig) -> Engine:
    return make_engine(config, job.module, job.federation.dataset)
