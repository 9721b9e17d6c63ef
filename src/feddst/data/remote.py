"""Clients whose images the server never sees, as far as it knows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from feddst.core import ClientData, Examples
from feddst.core.batches import Batch, tensors_of
from feddst.core.examples import Draw
from feddst.data.partition import Indices
from feddst.errors import DataError


@dataclass(frozen=True, eq=False)
class RemoteFederation:
    """Stands in for a `Federation` where clients are elsewhere.

    `example` is an input [1, *input_shape] like theirs, `targets` are like theirs if that is known; `images` is how
    many examples each client says it has, which may become known only during a run.
    """

    example: Batch
    num_classes: int
    num_clients: int
    images: Mapping[int, int] = field(default_factory=dict)
    targets: Batch | None = None

    def __post_init__(self) -> None:
        if self.num_clients < 1:
            raise DataError(f"a federation needs at least one client, got {self.num_clients}")

    @property
    def client_tests(self) -> tuple[Indices, ...]:
        """Nothing can be tested here."""
        return ()

    def num_images(self, client: int) -> int:
        """How many training images a client says it has; 0 if it has not said."""
        return self.images.get(client, 0)

    def data_of(self, client: int) -> ClientData:
        """Images that are elsewhere."""
        return _StoredThere(self, client)

    def description_of_data(self) -> bytes:
        """Bytes for a digest of the data."""
        return f"{_shapes(self.example)} {self.num_classes} {self.num_clients}".encode()


def _shapes(example: Batch) -> str:
    return ", ".join(str(list(value.shape)) for value in tensors_of(example))


@dataclass(frozen=True, eq=False)
class _StoredThere(ClientData):
    """A client's images, which the server never sees; their number may become known during a round."""

    federation: RemoteFederation
    client: int

    def __len__(self) -> int:
        return self.federation.num_images(self.client)

    def load(self, draw: Draw | None = None) -> Examples:
        raise DataError(f"the images of client {self.client} are on its own machine")
