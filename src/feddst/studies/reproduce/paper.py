"""What the paper reports: Tables 1 to 3, with the standard deviations of its appendix.

Best mean client accuracy [%] over 10 runs, at each of the table's upload caps, by table and row.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reported:
    """A mean and its standard deviation over runs."""

    mean: float
    spread: float

    def distance(self, mean: float) -> float:
        """How far another mean lies from this one, in standard deviations of this one."""
        return (mean - self.mean) / self.spread


Cells = tuple[Reported, Reported, Reported, Reported]


def _cells(*numbers: float) -> Cells:
    one, two, three, four = (Reported(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True))
    return one, two, three, four


PAPER: Mapping[str, Mapping[str, Cells]] = {
    "table1": {
        "fedavgm": _cells(85.25, 23.96, 96.32, 0.47, 97.16, 0.39, 97.53, 0.24),
        "fedprox": _cells(82.34, 27.74, 95.84, 0.79, 97.16, 0.20, 97.54, 0.11),
        "fedavgm-bfloat16": _cells(77.41, 24.38, 90.13, 13.18, 96.88, 0.58, 97.46, 0.21),
        "randommask": _cells(93.61, 3.80, 96.89, 0.25, 97.50, 0.06, 97.72, 0.05),
        "grasp": _cells(61.95, 31.64, 86.06, 17.27, 94.15, 6.56, 96.29, 2.59),
        "prunefl": _cells(78.12, 17.25, 89.29, 7.65, 91.65, 5.60, 93.26, 5.15),
        "feddst": _cells(96.10, 0.37, 97.35, 0.28, 97.67, 0.20, 97.83, 0.17),
        "feddst+fedprox": _cells(95.35, 0.68, 96.97, 0.25, 97.26, 0.13, 97.81, 0.12),
    },
    "table2": {
        "fedavgm": _cells(24.43, 3.15, 33.87, 2.12, 37.07, 1.63, 40.52, 1.07),
        "fedprox": _cells(23.54, 0.71, 34.01, 3.41, 39.08, 1.61, 42.56, 3.23),
        "fedavgm-bfloat16": _cells(22.58, 3.98, 34.05, 2.36, 37.10, 2.63, 41.65, 2.24),
        "randommask": _cells(33.98, 4.06, 41.86, 3.64, 45.99, 2.95, 48.01, 2.61),
        "grasp": _cells(15.68, 6.34, 29.50, 9.12, 39.70, 5.34, 44.85, 2.67),
        "prunefl": _cells(17.37, 6.58, 25.30, 7.48, 30.88, 4.30, 35.29, 5.93),
        "feddst": _cells(35.41, 1.10, 42.27, 0.52, 46.72, 2.03, 50.67, 2.38),
        "feddst+fedprox": _cells(33.03, 1.02, 43.18, 1.26, 46.66, 1.15, 49.69, 1.26),
    },
    "table3": {
        "fedavgm": _cells(6.66, 0.62, 9.29, 0.38, 10.13, 0.59, 10.94, 0.69),
        "fedprox": _cells(2.74, 0.86, 3.87, 1.06, 4.42, 1.06, 5.12, 1.09),
        "fedavgm-bfloat16": _cells(7.78, 0.25, 9.92, 0.38, 10.92, 0.21, 12.02, 0.52),
        "randommask": _cells(7.15, 0.84, 8.65, 0.54, 9.41, 0.67, 9.69, 0.90),
        "grasp": _cells(4.45, 1.65, 6.61, 0.48, 7.78, 0.44, 8.37, 0.79),
        "prunefl": _cells(5.78, 0.96, 8.10, 0.82, 9.44, 0.94, 10.02, 0.64),
        "feddst": _cells(9.14, 0.47, 11.30, 0.42, 13.18, 0.56, 13.96, 0.93),
        "feddst+fedprox": _cells(9.40, 0.52, 11.29, 0.37, 13.46, 0.39, 14.57, 0.52),
    },
}
