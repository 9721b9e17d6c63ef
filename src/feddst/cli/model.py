"""`feddst model show`: what a run's network consists of, and what it costs to use."""

from feddst.cli.arguments import Arguments
from feddst.cli.screen import show_table
from feddst.cli.settings import Origin, gather
from feddst.options import Option, options_of
from feddst.runtime import RunConfig
from feddst.runtime.anatomy import anatomy_of
from feddst.runtime.anatomy_table import closing, table
from feddst.runtime.config import config_of, refuse_ineffective


def model_options() -> list[Option]:
    """Every option of `feddst model show`."""
    return options_of(Origin) + options_of(RunConfig)


def model_command(given: Arguments) -> int:
    """Carry out `feddst model show`."""
    options = options_of(RunConfig)
    settings = gather(given, "run", options)
    config = config_of(settings.values)
    refuse_ineffective([config], settings.asked_for(options))
    config.check()
    found = anatomy_of(config)
    print(found.title)
    show_table(table(found), numbers=True)
    for line in closing(found):
        print(line)
    return 0
