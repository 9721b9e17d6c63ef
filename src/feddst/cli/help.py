"""Help texts, from the declarations of the options."""

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence

from feddst.cli.screen import page_width
from feddst.flower.config import FlowerConfig
from feddst.methods import METHODS
from feddst.options import Option
from feddst.runtime import RunConfig

INDENT = 6


def help_text(usage: str, summary: str, options: Sequence[Option]) -> str:
    """Usage, what the command does, and its options by group."""
    parts = [f"usage: {usage}", _filled(summary[0].upper() + summary[1:] + ".", 0)]
    for group, members in by_group(options).items():
        parts.append(_heading(group) + "\n" + "\n".join(_described(opt) for opt in members))
    return "\n\n".join(parts)


def overview(commands: Iterable[tuple[str, str]], group: str = "") -> str:
    """The help of the program itself, or of a group of its commands."""
    rows = [(name.removeprefix(f"{group} "), summary) for name, summary in commands]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name.ljust(width)}  {summary}" for name, summary in rows]
    if group:
        start = f"usage: feddst {group} COMMAND [options]"
        return "\n".join([start, "", *lines, "", f"`feddst {group} COMMAND --help` lists a command's options."])
    return "\n".join(
        [
            "usage: feddst COMMAND [options]",
            "",
            "Federated learning with dynamic sparse training.",
            "",
            *lines,
            "",
            "`feddst COMMAND --help` lists a command's options; `feddst --version` the version.",
        ]
    )


def by_group(options: Iterable[Option]) -> dict[str, list[Option]]:
    """Options by the part of their name before the last dot; those without a dot come under the empty name."""
    groups: dict[str, list[Option]] = {}
    for opt in options:
        group, dot, _ = opt.name.rpartition(".")
        groups.setdefault(group if dot else "", []).append(opt)
    return groups


def group_summary(group: str) -> str:
    """What a group of options is about, and which methods have it."""
    kind = FlowerConfig if group == "flower" else RunConfig().group(group)
    text = (kind.__doc__ or "").strip().splitlines()[0]
    users = [name for name, method in METHODS.items() if group in {field.name for field in dataclasses.fields(method)}]
    if not users or len(users) == len(METHODS):
        return text
    others = [name for name in METHODS if name not in users]
    return text + (f" Only for {', '.join(users)}." if len(users) < len(others) else f" Not for {', '.join(others)}.")


def shown_default(opt: Option) -> str:
    """An option's default as it would be typed."""
    if opt.type is bool:
        return str(opt.default).lower()
    return ",".join(map(str, opt.default)) if isinstance(opt.default, tuple) else str(opt.default)


def _heading(group: str) -> str:
    return _filled(f"{group}: {group_summary(group)}", 0) if group else "options"


def _described(opt: Option) -> str:
    if opt.type is bool:
        return f"  --{opt.name}\n" + _filled(opt.help, INDENT)
    first, default, said = f"  --{opt.name} {_kind(opt)}", shown_default(opt), opt.help
    if opt.choices and len(first) > page_width():
        first, said = f"  --{opt.name} NAME", f"{opt.help}; one of {', '.join(map(str, opt.choices))}"
    if default:
        shown = f"[default: {default}]"
        room = len(first) + 2 + len(shown) <= page_width()
        first += f"  {shown}" if room else f"\n{_filled(shown, INDENT)}"
    return first + "\n" + _filled(said, INDENT)


def _kind(opt: Option) -> str:
    """What an option takes, short."""
    if opt.choices:
        return "|".join(map(str, opt.choices))
    words = {int: "N", float: "X", str: "TEXT"}
    kind = words[opt.type] + (",…" if opt.repeated else "")
    return kind if opt.type is str or str(opt.bounds) == "finite" else f"{kind} ({opt.bounds})"


def _filled(text: str, indent: int) -> str:
    margin = " " * indent
    return textwrap.fill(
        text,
        page_width(),
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
