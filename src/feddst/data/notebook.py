"""Data sets and federations as notebooks show them."""

from feddst.data.dataset import Dataset
from feddst.data.federation import Federation
from feddst.data.show import count_table
from feddst.notebook import Fact, facts_html, table_html

NAMED = 12
"""Classes that are named; the others are counted."""
CLIENTS = 8
"""Clients that have a row of their own."""


def dataset_html(dataset: Dataset) -> str:
    """Sizes, what an input is, and the classes."""
    return facts_html(f"Dataset {dataset.name}", facts_of(dataset))


def federation_html(federation: Federation) -> str:
    """How the clients' sizes differ, the first of them with what they hold, and the data set."""
    sizes = [federation.num_images(client) for client in range(federation.num_clients)]
    low, high, mean = min(sizes), max(sizes), sum(sizes) / len(sizes)
    each = f"{low:,}" if low == high else f"{low:,} to {high:,} (on average {mean:,.1f})"
    facts = [
        ("clients", f"{len(sizes):,}, each with {each} training examples"),
        *facts_of(federation.dataset),
    ]
    title = f"Federation of {federation.description or federation.dataset.name}"
    return facts_html(title, facts, below=table_html(count_table(federation, CLIENTS)))


def facts_of(dataset: Dataset) -> list[Fact]:
    """A data set in a few facts."""
    more = len(dataset.classes) - NAMED
    names = ", ".join(dataset.classes[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return [
        ("examples", f"{len(dataset.train):,} for training, {len(dataset.test):,} for testing"),
        ("inputs", dataset.forms[0]),
        ("classes", f"{dataset.num_classes}: {names}") if names else ("targets", dataset.forms[1]),
    ]
