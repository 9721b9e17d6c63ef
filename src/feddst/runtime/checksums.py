"""Checksums inside the texts that they cover, so that damage to a file is noticed.

A JSON object has its checksum as its last member, `"check"`. In a file of several lines, a line's checksum covers all
lines before it as well. A text that begins with a comment has its checksum there. Files older than checksums have none,
and are accepted as they are.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from feddst.runtime.files import write_atomically, writing

_MEMBER = re.compile(rb',\s*"check": "([0-9a-f]{16})"(\s*)\}\s*\Z')
_COMMENT = re.compile(rb", check ([0-9a-f]{16})\Z")
_INDENT = re.compile(rb"\n\s*")


@dataclass(frozen=True)
class Opened:
    """A text without its checksum; `check` is empty if it had none, `sound` is False if the text is damaged."""

    content: bytes
    check: str
    sound: bool


def seal(text: bytes, before: str = "") -> bytes:
    """A JSON object with its checksum; `before` is that of the line before it."""
    inside = text.rstrip()[:-1]
    body = inside.rstrip()
    closing = inside[len(body) :]
    indent = _INDENT.match(body, 1) if closing else None
    gap = b" " if indent is None else indent[0]
    member = b'"check": "' + _digest(before.encode(), text.rstrip()).encode() + b'"'
    return body + b"," + gap + member + closing + b"}"


def unseal(text: bytes, before: str = "") -> Opened:
    """The inverse of `seal`."""
    found = _MEMBER.search(text)
    if found is None:
        return Opened(text, "", sound=b'"check"' not in text)
    content = text[: found.start()] + found[2] + b"}"
    return Opened(content, found[1].decode(), sound=seal(content, before) == text.rstrip(b"\n"))


def seal_text(text: bytes) -> bytes:
    """A text whose first line is a comment, with its checksum at the end of that line."""
    heading, _, rest = text.partition(b"\n")
    return heading + f", check {_digest(text)}\n".encode() + rest


def unseal_text(text: bytes, heading: bytes) -> Opened:
    """The inverse of `seal_text`; a text without a checksum has this heading, or none."""
    first, newline, rest = text.partition(b"\n")
    found = _COMMENT.search(first)
    if found is None:
        return Opened(text, "", sound=bool(newline) and (first == heading or not first.startswith(b"#")))
    content = first[: found.start()] + newline + rest
    return Opened(content, found[1].decode(), sound=seal_text(content) == text)


def unseal_lines(content: bytes) -> Iterator[Opened]:
    """The lines of a file; a torn last one (a killed run) is left out."""
    before = ""
    for line in content.split(b"\n")[:-1]:
        opened = unseal(line, before)
        if before and not opened.check:
            opened = Opened(line, "", sound=False)  # no line without a checksum follows one that has it
        before = opened.check
        yield opened


class Journal:
    """A growing file of JSON lines, each with its checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: str | None = None

    def append(self, line: str) -> None:
        """Add a line, without waiting for the disk."""
        with writing(self.path):
            sealed = self._sealed(line, self._check_of_last())
            with self.path.open("ab") as file:
                file.write(sealed)

    def replace(self, lines: list[str]) -> None:
        """Replace all lines by these."""
        self._last = ""
        write_atomically(self.path, b"".join([self._sealed(line, self._last or "") for line in lines]))

    def settle(self) -> None:
        """Wait until what was written is on the disk."""
        if self.path.is_file():
            with writing(self.path), self.path.open("ab") as file:
                os.fsync(file.fileno())

    def _sealed(self, line: str, before: str) -> bytes:
        sealed = seal(line.encode(), before)
        self._last = unseal(sealed).check
        return sealed + b"\n"

    def _check_of_last(self) -> str:
        if self._last is None:
            lines = list(unseal_lines(self.path.read_bytes())) if self.path.is_file() else []
            self._last = lines[-1].check if lines else ""
        return self._last


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
