"""What any Flower app has: a network, a client's data, and a test. Nothing here knows of FedDST."""

import numpy as np
import torch
from torch import Tensor, nn

from feddst.data import DataConfig, Dataset, load  # the bundled digits stand in for data of your own


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        self.classifier = nn.Sequential(nn.Linear(8 * 12 * 12, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(images))
        return scores


def digits() -> Dataset:
    """All images."""
    return load(DataConfig(dataset="mnist"))


def load_data(partition: int, partitions: int) -> tuple[Tensor, Tensor]:
    """The images and labels of one client: every n-th of the first 3000."""
    return digits().train.read(np.arange(partition, 3000, partitions)).pair


def test(net: nn.Module) -> float:
    """The share of the test images that a network gets right."""
    images, labels = digits().test.read().pair
    with torch.no_grad():
        scores = net.eval()(images)
    return float((scores.argmax(dim=1) == labels).float().mean())
