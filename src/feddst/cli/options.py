"""`feddst options`: every option of every command, on the screen or as a page of the docs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feddst.cli.arguments import Arguments
from feddst.cli.command import Command
from feddst.cli.help import by_group, group_summary, shown_default
from feddst.cli.screen import show_table
from feddst.errors import OptionError
from feddst.options import Option, as_words, option, options_of
from feddst.runtime import RunConfig
from feddst.runtime.old_names import METHODS, OPTIONS

HEADING = ("option", "default", "allowed", "meaning")


@dataclass(frozen=True)
class OptionsArguments:
    """How the options are listed."""

    markdown: bool = option(False, "all of them, as a page of the docs")


def options_command(given: Arguments, commands: Mapping[str, Command]) -> int:
    """Carry out `feddst options`, or `feddst options WORD`."""
    if given.values.get("markdown"):
        print(page(commands), end="")
        return 0
    word = given.words[0].lower() if given.words else ""
    rows = [
        (name, f"--{opt.name}", shown_default(opt), _meaning(opt))
        for name, options in own_options(commands).items()
        for opt in options
        if word in opt.name.lower() or word in _meaning(opt).lower()
    ]
    if not rows:
        raise OptionError(f"no option has {word!r} in its name or meaning")
    show_table([("command", "option", "default", "meaning"), *rows])
    return 0


def _meaning(opt: Option) -> str:
    """What an option means, and what it may be where that can be listed."""
    return f"{opt.help} ({opt.allowed()})" if opt.choices else opt.help


def own_options(commands: Mapping[str, Command]) -> dict[str, list[Option]]:
    """The options of each command, without those of a run, which are listed with the first command alone."""
    of_a_run, first = options_of(RunConfig), next(iter(commands))
    return {
        name: [opt for opt in command.options() if name == first or opt not in of_a_run]
        for name, command in commands.items()
    }


def page(commands: Mapping[str, Command]) -> str:
    """All options as a page of the docs."""
    parts = [
        "# Every option",
        "Made by `feddst options --markdown`. `feddst COMMAND --help` says the same of one command, and\n"
        "`feddst options WORD` finds options by their name or meaning.",
        "An option is typed `--name value`, and written `name = value` in a TOML file (`--config`), where the part of\n"
        'the name before the dot may be a table. In Python, `feddst.configure(rounds=50, data={"clients": 10})` takes\n'
        "the same names. A yes-or-no option stands alone and means yes; `--name=false` means no. Dashes and\n"
        "underscores in names are the same. What a preset gives, the file overrules; what the file gives, the\n"
        "command line.",
        "## The options of a run",
        *_groups(options_of(RunConfig)),
        "## Commands",
        *(_command(name, command) for name, command in commands.items()),
        "## Names of earlier versions",
        "Files, commands and run directories with these are read, with one line that says so.",
        _old_names(),
    ]
    return "\n\n".join(parts) + "\n"


def _old_names() -> str:
    options = [(f"`--{old}`", f"`--{new}`") for old, new in OPTIONS.items()]
    methods = [
        (f"`--method {old}`", f"`--method {former.method} {' '.join(as_words(former.options))}`")
        for old, former in METHODS.items()
    ]
    return "\n".join(["| before | now |", "|---|---|", *(f"| {old} | {new} |" for old, new in (*options, *methods))])


def _groups(options: Sequence[Option]) -> list[str]:
    found = []
    for group, members in by_group(options).items():
        title = f"### `{group}`\n\n{group_summary(group)}" if group else "### The run itself"
        found.append(f"{title}\n\n{_table(members)}")
    return found


def _command(name: str, command: Command) -> str:
    of_a_run = options_of(RunConfig)
    taken = command.options()
    own = [opt for opt in taken if opt not in of_a_run]
    parts = [f"### feddst {name}", f"```text\nfeddst {command.usage}\n```", _sentence(command.summary)]
    if own:
        parts.append(_table(own))
    if shared := [opt for opt in of_a_run if opt in taken]:
        parts.append(_sentence(("and " if own else "") + _shared(shared, of_a_run)))
    if not taken:
        parts.append("It has no options.")
    return "\n\n".join(parts)


def _shared(shared: Sequence[Option], of_a_run: Sequence[Option]) -> str:
    """Which options of a run a command takes, in a sentence."""
    link = "options of a run](#the-options-of-a-run)"
    left = [opt for opt in of_a_run if opt not in shared]
    if len(left) > len(shared):
        return f"those [{link} that are called {_names(shared, of_a_run)}"
    return f"all [{link}" + (f" but {_names(left, of_a_run)}" if left else "")


def _names(some: Sequence[Option], of_a_run: Sequence[Option]) -> str:
    """Options by name, or by group where all of a group are among them."""
    names: dict[str, None] = {}
    everything = by_group(of_a_run)
    for group, members in by_group(some).items():
        whole = group and members == everything[group]
        names |= dict.fromkeys([f"`{group}.…`"] if whole else [f"`{opt.name}`" for opt in members])
    return ", ".join(names)


def _table(options: Sequence[Option]) -> str:
    rows = [HEADING, *((f"`--{opt.name}`", _code(shown_default(opt)), opt.allowed(), opt.help) for opt in options)]
    heading, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([heading, "|" + "---|" * len(HEADING), *body])


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
