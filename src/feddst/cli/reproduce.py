"""`feddst reproduce` and `feddst study`: the paper's tables and figures, and the user's own."""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from feddst.cli.arguments import Arguments
from feddst.cli.interruption import Interruption
from feddst.cli.places import RUNS, command
from feddst.cli.progress import FINISHING, make_bar
from feddst.cli.screen import say, show_table
from feddst.early_interrupt import INTERRUPTED
from feddst.errors import OptionError
from feddst.options import Option, as_words, one_of, option, options_of, updated
from feddst.runtime.wording import percent
from feddst.studies.reproduce.carry_out import reproduce
from feddst.studies.reproduce.config import TARGETS, ReproduceConfig
from feddst.studies.reproduce.figures import SWEEP, curves_of
from feddst.studies.reproduce.progress import Overview, ProgressLines
from feddst.studies.reproduce.record import RECORD, Record
from feddst.studies.reproduce.request import Request
from feddst.studies.reproduce.study import StudyConfig
from feddst.studies.reproduce.table import TABLE, caption, notes, partial, sentences, short_table

UNFINISHED = 3
"""The exit code when the time ran out before the work was done."""


@dataclass(frozen=True)
class ReproduceArguments:
    """Where results go."""

    out: str = option("", "directory for everything; what it holds is gone on with; empty: one under runs/")


def reproduce_options() -> list[Option]:
    """Every option of `feddst reproduce`."""
    return options_of(ReproduceArguments) + options_of(ReproduceConfig)


def study_options() -> list[Option]:
    """Every option of `feddst study`."""
    return options_of(ReproduceArguments) + options_of(StudyConfig)


def reproduce_command(given: Arguments) -> int:
    """Carry out `feddst reproduce`."""
    if not given.words:
        raise OptionError(f"reproduce needs a target: {one_of(TARGETS)}")
    return _carry_out(ReproduceConfig(given.words[0]), given)


def study_command(given: Arguments) -> int:
    """Carry out `feddst study`."""
    if not given.words:
        raise OptionError("study needs a TOML file that describes it")
    return _carry_out(StudyConfig(given.words[0]), given)


def _carry_out(asked: Request, given: Arguments) -> int:
    config = updated(asked, {name: value for name, value in given.values.items() if name != "out"})
    config.check()
    out = Path(given.values.get("out") or RUNS / config.name)
    again = command(config.command, config.target, *as_words({**given.values, "out": str(out)}))
    say(f"{config.target} on {config.describe_data()}; writing to {out}")
    interruption = Interruption()
    try:
        with interruption, OverallReporter(interruption) as reporter:
            record = reproduce(config, out=out, overseer=reporter)
    except KeyboardInterrupt:
        say(f"stopped; go on from the last checkpoints with\n  {again}")
        return INTERRUPTED
    show(record, out)
    if record.complete((row.name for row in config.wanted_rows()), config.wanted_seeds()):
        return 0
    say(f"stopped; go on with\n  {again}")
    return INTERRUPTED if interruption.asked else UNFINISHED


def show(record: Record, out: Path) -> None:
    """The table, the differences at the largest cap, and where the files are."""
    print("\n" + " ".join(filter(None, [partial(record), caption(record)])))
    show_table(short_table(record), numbers=True)
    for line in [*notes(record), "", *sentences(record), ""]:
        print(line)
    for name in (RECORD, TABLE, curves_of(record), SWEEP):
        if (out / name).is_file():
            print(out / name)


class OverallReporter(ProgressLines):
    """One bar for all runs on a terminal, else lines; stops the runs when the user asks. Use it as a context."""

    def __init__(self, interruption: Interruption) -> None:
        super().__init__()
        self._interruption = interruption
        self._bar = make_bar()
        interruption.announce = lambda: say(FINISHING)

    def __enter__(self) -> "OverallReporter":
        if self._bar is not None:
            self._task = self._bar.add_task("0.0 %", total=1.0, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interruption.in_rounds = False
        if self._bar is not None:
            self._bar.stop()

    def show(self, overview: Overview) -> None:
        self._interruption.in_rounds = True
        if self._bar is None:
            super().show(overview)
            return
        done = f"{percent(overview.done)}, row {min(overview.rows_done + 1, overview.rows)}/{overview.rows}"
        self._bar.update(self._task, completed=overview.done, description=done, text=overview.news())

    def stop(self) -> bool:
        return self._interruption.asked
