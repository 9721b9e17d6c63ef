"""Data sets and federations as notebooks show them."""

from xml.etree import ElementTree

import numpy as np

from feddst.data import Dataset, Federation

IMAGES, LABELS = np.zeros((9, 1, 2, 2), "uint8"), np.arange(9) % 3


def cells(html: str) -> list[str]:
    return [cell.text or "" for cell in ElementTree.fromstring(html).iter("td")]


def test_a_data_set() -> None:
    dataset = Dataset.from_arrays((IMAGES, LABELS), (IMAGES[:3], LABELS[:3]), classes=("a", "b", "<c>"))
    assert cells(dataset._repr_html_()) == [
        *("examples", "9 for training, 3 for testing"),
        *("inputs", "uint8 [1, 2, 2]"),
        *("classes", "3: a, b, <c>"),
    ]
    many = Dataset.from_arrays((IMAGES, LABELS), (IMAGES, LABELS), classes=tuple(str(i) for i in range(20)))
    assert cells(many._repr_html_())[-1] == "20: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"


def test_a_federation() -> None:
    clients = [(IMAGES[:5], LABELS[:5]), (IMAGES[5:], LABELS[5:])]
    shown = cells(Federation.from_clients(train=clients, test=(IMAGES, LABELS))._repr_html_())
    assert shown[:2] == ["clients", "2, each with 4 to 5 (on average 4.5) training examples"]
    assert shown[-8:] == ["0", "5", "9", "0 ×2, 1 ×2, 2 ×1", "1", "4", "9", "2 ×2, 0 ×1, 1 ×1"]
