"""All methods in a table: what each sends, costs and leaves behind."""

from collections.abc import Mapping

from feddst.methods.base import Method

HEADING = ("method", "what it is", "paper", "up", "down", "bits up, a client a round", "a client keeps", "result")


def rows(methods: Mapping[str, type[Method]]) -> list[tuple[str, ...]]:
    """The table, its heading first."""
    found: list[tuple[str, ...]] = [HEADING]
    for name, method in methods.items():
        card = method.card
        found.append((name, method.summary, card.paper, card.up, card.down, card.cost, card.state, card.result))
    return found


def page(methods: Mapping[str, type[Method]]) -> str:
    """The table as a page of the docs."""
    heading, *body = rows(methods)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in body]
    return "\n".join(
        [
            "# Methods",
            "",
            "Made by `feddst methods --markdown`. Costs are by the paper's formula, for n weights and biases,",
            "sparsity S and float32 values, which another codec (`--wire.values`) makes narrower. What a run really",
            "sends is measured.",
            "",
            "| " + " | ".join(heading) + " |",
            "|" + "---|" * len(heading),
            *lines,
            "",
        ]
    )
