"""`python -m scripts.tables` rewrites what is no longer as the records have it, and names those pages."""

import sys

from scripts.tables.benches import BENCHES, bench_page
from scripts.tables.blocks import filled, pages
from scripts.tables.records import ROOT


def main() -> int:
    """Write every page whose tables have changed."""
    made = {path: filled(path, path.read_text()) for path in pages()}
    made |= {ROOT / f"docs/{name}.md": bench_page(name) for name in BENCHES}
    for path, text in made.items():
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
