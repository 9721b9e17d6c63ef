"""`feddst methods` and `feddst presets`: what there is."""

from dataclasses import dataclass

from feddst.cli.arguments import Arguments
from feddst.cli.screen import show_table
from feddst.methods import METHODS
from feddst.methods.listing import page, rows
from feddst.options import option
from feddst.runtime.presets import PRESETS, find_preset

WHAT = ("method", "what it is", "result")
COSTS = ("method", "up", "down", "bits up, a client a round", "a client keeps")


@dataclass(frozen=True)
class MethodsArguments:
    """How the methods are listed."""

    costs: bool = option(False, "what each sends, by the paper's formula, and what clients keep")
    markdown: bool = option(False, "all of it, as a page of the docs")


def methods_command(given: Arguments) -> int:
    """Carry out `feddst methods`."""
    if given.values.get("markdown"):
        print(page(METHODS), end="")
        return 0
    chosen = COSTS if given.values.get("costs") else WHAT
    heading, *body = rows(METHODS)
    places = [heading.index(name) for name in chosen]
    show_table([tuple(row[place] for place in places) for row in (heading, *body)], wrap=True)
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
