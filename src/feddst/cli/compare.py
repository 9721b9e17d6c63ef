"""`feddst compare`: several methods on the same seeds, partition and initial weights."""

from pathlib import Path

from feddst.cli.arguments import Arguments
from feddst.cli.interruption import Interruption
from feddst.cli.logs import asked_logs, say_places
from feddst.cli.places import command, fresh
from feddst.cli.progress import Reporter
from feddst.cli.run import describe_setting
from feddst.cli.screen import say, show_table
from feddst.cli.settings import gather
from feddst.early_interrupt import INTERRUPTED
from feddst.logs import Several
from feddst.options import as_words
from feddst.runtime.config import refuse_ineffective
from feddst.runtime.wording import counted
from feddst.studies import Comparison, compare
from feddst.studies.comparison import compare_config, compare_options
from feddst.studies.reports import TABLE, picture_of
from feddst.studies.tables import caption, headline, notes, table


def compare_command(given: Arguments) -> int:
    """Carry out `feddst compare`."""
    options = compare_options()
    settings = gather(given, "compare", options)
    config = compare_config(settings.values)
    config.check()
    each = [entry.config(config.base, config.seeds[0], config.given) for entry in config.entries()]
    refuse_ineffective(each, settings.asked_for(options))
    out = Path(given.values["out"]) if given.values.get("out") else fresh(f"compare-{config.base.data.dataset}")
    runs = counted(len(config.methods) * len(config.seeds), "run")
    opening = f"{runs} on {describe_setting(config.base)}; writing to {out}"
    again = command("compare", *as_words({**given.values, "out": str(out)}))
    logs = asked_logs(given)
    say_places(logs, out)
    interruption = Interruption()
    try:
        with interruption, Several(Reporter(interruption, opening), *logs) as watcher:
            comparison = compare(config, out=out, watcher=watcher)
    except KeyboardInterrupt:
        say(f"stopped; go on from the last checkpoints with\n  {again}")
        return INTERRUPTED
    if not comparison.finished:
        say(f"stopped; go on with\n  {again}")
        return INTERRUPTED
    show(comparison)
    return 0


def show(comparison: Comparison) -> None:
    """Print the table, where it and the picture are, how to get a report, and the headline."""
    print("\n" + caption(comparison))
    show_table(table(comparison), numbers=True)
    for note in notes(comparison):
        print(note)
    print(f"\ntable    {comparison.path / TABLE}")
    picture = comparison.path / picture_of(comparison)
    if picture.is_file():
        print(f"picture  {picture}")
    print(f"report   {command('report', str(comparison.path))}")
    print("\n" + headline(comparison))
