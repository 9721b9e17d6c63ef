"""What the native engine was designed for, and whether it is so."""

from collections.abc import Iterator
from itertools import pairwise

from benchmarks.cpu.jobs import Case
from benchmarks.cpu.measure import CpuRecord
from benchmarks.cpu.rounds import RoundRow
from benchmarks.targets import Verdict

SPEEDUPS = (
    (Case(0.8, "erk"), 12, ""),
    (Case(0.8, "erk"), 15, " (stretch)"),
    (Case(0.95, "erk"), 20, ""),
    (Case(0.0), 2, ""),
)
"""A network, how many times as fast as PyTorch its rounds are to be, and what kind of target that is."""


def verdicts(record: CpuRecord) -> list[Verdict]:
    """All targets, for each job."""
    jobs = list(dict.fromkeys(row.job for row in record.rounds))
    return [verdict for job in jobs for verdict in (*_speedups(record, job), *_falls(record, job))]


def _speedups(record: CpuRecord, job: str) -> Iterator[Verdict]:
    rows = {row.case: row for row in _ours(record, job)}
    for case, least, kind in SPEEDUPS:
        target = f"{case}: at least {least} times as fast as PyTorch{kind}"
        row = rows.get(case)
        if row is None:
            yield Verdict(job, target, None, "")
        else:
            found = record.speedup(row)
            yield Verdict(
                job, target, found >= least, f"{found:.2f}: {row.usual:.3f} s, {record.torch(row).usual:.3f} s"
            )


def _falls(record: CpuRecord, job: str) -> Iterator[Verdict]:
    """Whether fewer weights take less time, from each network to the next sparser one."""
    for distribution in ("erk", "uniform"):
        rows = [row for row in _ours(record, job) if not row.case.level or row.case.distribution == distribution]
        rows.sort(key=lambda row: row.case.level)
        steps = list(pairwise(rows))
        target = f"the sparser, the faster at every step, {'ERK' if distribution == 'erk' else distribution}"
        seconds = ", ".join(f"{row.case.level:g}: {row.ordinary.median:.3f} s" for row in rows)
        met = all(after.ordinary.median < before.ordinary.median for before, after in steps) if steps else None
        yield Verdict(job, target, met, seconds)


def _ours(record: CpuRecord, job: str) -> list[RoundRow]:
    return [row for row in record.rounds if (row.job, row.runner) == (job, "native")]
