"""The clients. `client_app` takes the place of a `ClientApp` with a train function of one's own."""

from flwr.app import Context
from torch import Tensor

from feddst.flower import client_app
from quickstart.task import Net, load_data


def data(context: Context) -> tuple[Tensor, Tensor]:
    """This client's images and labels."""
    partition, partitions = context.node_config["partition-id"], context.node_config["num-partitions"]
    return load_data(int(partition), int(partitions))


app = client_app(Net, data)
