"""How a convolution's pixels are grouped, and its matrix products split."""

from dataclasses import dataclass

from feddst.engines.stacked.kernels.batch import Planes, ceiling, power

_MOST_ROWS = 64
_LOAD = 48
"""The cost of loading a pixel, in multiplications."""
_RAGGED = 1.3
"""The cost factor of loads that check the bounds at every pixel."""


@dataclass(frozen=True)
class Grouping:
    """Groups of tall × broad neighbours, and the matrix of shifted weights they make: rows × taps."""

    tall: int
    broad: int
    rows: int
    taps: int

    @classmethod
    def best(
        cls, inputs: int, result: Planes, window: tuple[int, int], *, padded: bool = False, piece: int = 1
    ) -> "Grouping":
        """The grouping with the least expected time; padded: zeros follow the source, for ragged groups.

        piece: taps are a multiple of it.
        """
        most = max(1, _MOST_ROWS // result.channels)
        choices = [
            cls(tall, broad, power(result.channels * tall * broad, 16), inputs * _area(window, tall, broad))
            for tall in range(1, most + 1)
            for broad in range(1, most // tall + 1)
        ]
        return min(choices, key=lambda choice: choice._cost(result, padded, piece))

    def groups(self, result: Planes) -> int:
        """How many groups cover a plane."""
        return ceiling(result.height, self.tall) * ceiling(result.width, self.broad)

    def _cost(self, result: Planes, padded: bool, piece: int) -> float:
        ragged = not padded and (result.height % self.tall or result.width % self.broad)
        taps = ceiling(self.taps, piece) * piece
        return self.groups(result) * taps * (self.rows + _LOAD) * (_RAGGED if ragged else 1)


@dataclass(frozen=True)
class Tile:
    """The columns and depth of one step of a matrix product, and its warps and stages."""

    block: int
    depth: int
    warps: int
    stages: int


def covering(planes: Planes, grouping: Grouping) -> Planes:
    """The smallest planes that consist of whole groups."""
    height = ceiling(planes.height, grouping.tall) * grouping.tall
    return Planes(planes.channels, height, ceiling(planes.width, grouping.broad) * grouping.broad)


def _area(window: tuple[int, int], tall: int, broad: int) -> int:
    return (window[0] + tall - 1) * (window[1] + broad - 1)
