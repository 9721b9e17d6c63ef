"""A federation's clients as tensors, for benchmarks and the software beside which they measure."""

from torch import Tensor

from benchmarks.rivals.job import Client
from feddst.data import Federation


def clients_in(federation: Federation) -> list[Client]:
    """Every client's inputs and labels."""
    found: list[Client] = []
    for client in range(federation.num_clients):
        examples = federation.client_data(client)
        assert isinstance(examples.inputs, Tensor)
        assert isinstance(examples.targets, Tensor)
        found.append((examples.inputs, examples.targets))
    return found
