"""`feddst methods` and `feddst presets`: what there is."""

from dataclasses import dataclass

from feddst.cli.arguments import Arguments
from feddst.cli.screen import show_table
from feddst.experiment.presets import PRESETS, find_preset
from feddst.methods import METHODS
from feddst.methods.listing import page, rows
from feddst.options import option


@dataclass(frozen=True)
class MethodsArguments:
    """How the methods are listed."""

    markdown: bool = option(False, "as a page of the docs")


def methods_command(given: Arguments) -> int:
    """Carry out `feddst methods`."""
    if given.values.get("markdown"):
        print(page(METHODS), end="")
        return 0
    table = rows(METHODS)
    show_table([(row[0], *row[2:]) for row in table])
    print()
    show_table([row[:2] for row in table])
    return 0


def presets_command(given: Arguments) -> int:
    """Carry out `feddst presets`, or `feddst presets NAME`."""
    if given.words:
        return _show_preset(given.words[0])
    rows = [(preset.name, preset.command, preset.summary) for preset in PRESETS.values()]
    show_table([("preset", "for", "what it is"), *rows])
    return 0


def _show_preset(name: str) -> int:
    preset = find_preset(name)
    print(f"{preset.summary}\nfeddst {preset.command} --preset {preset.name}\n")
    show_table([("option", "value"), *((option, _shown(value)) for option, value in preset.options.items())])
    return 0


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
