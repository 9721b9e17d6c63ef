"""How far a run is, and how long it will still take."""

from feddst.runtime.config import RunConfig
from feddst.runtime.metrics import GIB, Row
from feddst.runtime.wording import WAYS, duration, size

RECENT = 10


class Pace:
    """Follows one run, row by row."""

    def __init__(self, config: RunConfig) -> None:
        self._rounds = config.rounds
        self._cap = config.cap_gib * GIB
        self.accounting = config.accounting
        self._recent: list[float] = []

    def add(self, row: Row) -> None:
        """Note a finished round, except round 0: it takes another time than rounds of training."""
        if row.round > 0:
            self._recent = [*self._recent, row.seconds][-RECENT:]

    @property
    def seconds_a_round(self) -> float:
        """The mean over the last few rounds."""
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    def done(self, row: Row) -> float:
        """The share of the run that is over after `row`: of its rounds or its upload, whichever ends it first."""
        return min(1.0, max(_share(row.round, self._rounds), _share(row.upload(self.accounting), self._cap)))

    def seconds_left(self, row: Row) -> float:
        """An estimate from the pace of the last few rounds."""
        done = self.done(row)
        return self.seconds_a_round * row.round * (1 - done) / done if done else 0.0


def _share(amount: float, limit: float) -> float:
    return amount / limit if limit else 0.0


def progress_line(pace: Pace, row: Row, score: float) -> str:
    """An evaluation in one line."""
    return (
        f"round {row.round}: {row.metric.name} {row.metric.text(score)}, "
        f"upload {size(row.upload(pace.accounting))} {WAYS[pace.accounting]}, "
        f"{pace.seconds_a_round:.1f} s a round, about {duration(pace.seconds_left(row))} left"
    )
