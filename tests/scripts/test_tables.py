"""Every table that pages have from records is as the records have it now; what is measured stands in no prose."""

import re
from pathlib import Path

import pytest

from scripts.tables.benches import BENCHES, bench_page
from scripts.tables.blocks import BUILDERS, block, filled, outside, pages
from scripts.tables.records import ROOT, made_by

WRITTEN = [path.relative_to(ROOT).as_posix() for path in pages()]
MEASURED = re.compile(r"\d ± \d|[+−]\d+\.\d+ \[")
"""A mean with its spread, or a difference with its interval."""
MADE = {*(f"docs/{name}.md" for name in BENCHES), "docs/methods.md"}
"""Pages, or tables on them, that a program writes without blocks."""


@pytest.mark.parametrize("page", WRITTEN)
def test_tables_are_up_to_date(page: str) -> None:
    text = (ROOT / page).read_text()
    assert filled(ROOT / page, text) == text, "run `make docs-tables`"


@pytest.mark.parametrize("name", BENCHES)
def test_pages_of_benches_are_up_to_date(name: str) -> None:
    assert (ROOT / f"docs/{name}.md").read_text() == bench_page(name), "run `make docs-tables`"


@pytest.mark.parametrize("page", [page for page in WRITTEN if page not in MADE])
def test_what_is_measured_stands_in_tables(page: str) -> None:
    assert MEASURED.findall(outside((ROOT / page).read_text())) == []


# The blocks themselves.


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.tables.blocks.BUILDERS", dict(BUILDERS))

    @block
    def greeting(*names: str) -> str:
        return f"Hello, {' and '.join(names)}: [record](results/quick.json), [site](https://example.org)"

    monkeypatch.setitem(BUILDERS, "greeting", greeting)


PAGE = """before
<!-- record: greeting Ada "Grace Hopper" -->
whatever
stood here
<!-- end -->
after
"""


@pytest.mark.usefixtures("greeting")
@pytest.mark.parametrize(("page", "up"), [("README.md", ""), ("docs/index.md", "../")])
def test_a_block_is_written_by_its_function(page: str, up: str) -> None:
    made = filled(ROOT / page, PAGE)
    links = f"[record]({up}results/quick.json), [site](https://example.org)"
    assert made == (
        'before\n<!-- record: greeting Ada "Grace Hopper" -->\n\n'
        f"Hello, Ada and Grace Hopper: {links}\n\n<!-- end -->\nafter\n"
    )
    assert filled(ROOT / page, made) == made
    assert outside(made) == "before\n\nafter\n"


def test_a_block_that_nobody_writes_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"a block is accuracies, .*, not nonsense"):
        filled(Path(ROOT / "README.md"), "<!-- record: nonsense -->\n<!-- end -->\n")


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("feddst reproduce table1 --engine.kind stacked --engine.device cuda", "feddst reproduce table1"),
        ("feddst study a.toml --rows b --engine.workers 1; feddst study a.toml --rows c", "feddst study a.toml"),
        ("feddst study a.toml --seeds 3; feddst study a.toml --seeds 3 --rows c", "feddst study a.toml --seeds 3"),
        ("feddst bench cpu --turns 3", "make bench-cpu ARGS='--turns 3'"),
        ("python scripts/slow_network.py", "python -m benchmarks.flower.slow_network"),
    ],
)
def test_a_records_command_in_short(command: str, short: str) -> None:
    assert made_by(command) == f"`{short}`"
