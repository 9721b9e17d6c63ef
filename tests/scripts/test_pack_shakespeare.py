"""`scripts/pack_shakespeare.py`: names before speeches are told from everything else."""

import lzma
import runpy
import tarfile
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/pack_shakespeare.py"

PLAY = """THE TRAGEDY OF NOBODY

PERSONS REPRESENTED.

ANNE.
A lady.

ACT I.

SCENE I. A room.

[Enter ANNE and
two SERVANTS.]

ANNE.
Good morrow,  both. [They bow.]
How does _your_ lord?

[Knocking within.]

Who knocks? I
am not at home.

FIRST SERVANT. [Aside.]
Nor well.

BOTH.
Madam!

ANNE.

[Exit FIRST SERVANT.

Stay, sirs.

SCENE II. The same.

A noise without.

1 CITIZEN.
What news?

Anne.
None.

THE END
"""

SMALL_NAMES = """NOBODY

Act I.

Scene I.

An.
Speak.

Mar. and Ber.
We do.

Ber.
I do.

[Exit.]

Come, let us go.
An, farewell.
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_each_speech_goes_to_who_says_it(script: dict[str, Any]) -> None:
    """Stage directions, headings of scenes, and what several say are nobody's."""
    assert script["speeches"](PLAY) == {
        "ANNE": ["Good morrow, both. How does your lord? Who knocks? I am not at home.", "Stay, sirs.", "None."],
        "FIRST SERVANT": ["Nor well."],
        "1 CITIZEN": ["What news?"],
    }


def test_a_play_may_print_its_names_small(script: dict[str, Any]) -> None:
    assert script["speeches"](SMALL_NAMES) == {"AN": ["Speak."], "BER": ["I do. Come, let us go. An, farewell."]}


@pytest.mark.parametrize("archive", [False, True])
def test_plays_are_packed_and_poems_are_not(script: dict[str, Any], tmp_path: Path, archive: bool) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "nobody_gut.txt").write_text(SMALL_NAMES)
    (texts / "sonnets_gut.txt").write_text("From fairest creatures we desire increase")
    given = texts
    if archive:
        given = tmp_path / "all.tar.gz"
        with tarfile.open(given, "w:gz") as tar:
            tar.add(texts, "data/texts")
            tar.add(texts / "nobody_gut.txt", "miltondata/texts/paradise_gut.txt")
    script["main"](given, tmp_path / "out.xz")
    packed = lzma.decompress((tmp_path / "out.xz").read_bytes())
    assert packed == b"nobody: AN\nSpeak.\n\nnobody: BER\nI do. Come, let us go. An, farewell.\n\n"


def test_something_else_is_refused(script: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no files \*_gut\.txt"):
        script["main"](tmp_path, tmp_path / "out.xz")
    (tmp_path / "prose_gut.txt").write_text("No play at all")
    with pytest.raises(SystemExit, match="a play without acts: 'No play at all'"):
        script["main"](tmp_path, tmp_path / "out.xz")
    assert not (tmp_path / "out.xz").exists()
