"""What the plain client says of data that do not fit, where nothing could be seen beforehand."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import feddst
from feddst.errors import TrainingError
from feddst.runtime.loop import Silent


class Texts(Dataset[tuple[Tensor, Tensor]]):
    """Texts of tokens 0 to 3, the last of which goes on with a token that the network does not have."""

    def __init__(self, size: int, last: int) -> None:
        self._size = size
        self._last = last

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        text = (torch.arange(7) + place) % 4
        return text[:-1], text[1:] if place < self._size - 1 else torch.full((6,), self._last)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.scores = nn.Embedding(4, 4), nn.Linear(4, 4)

    def forward(self, text: Tensor) -> Tensor:
        return self.scores(self.tokens(text)).movedim(-1, 1)  # type: ignore[no-any-return]


def test_a_class_that_the_network_does_not_have_is_named_in_one_line() -> None:
    data = feddst.Federation.from_clients([Texts(40, last=9)], Texts(20, last=0))
    config = feddst.configure(
        rounds=1,
        data={"clients": 1},
        cohort={"size": 1},
        local={"objective": "tokens", "epochs": 1},
        engine={"kind": "reference", "workers": 1},
    )
    with pytest.raises(
        TrainingError, match=r"client 0 cannot be trained in round 1: a token or a class is beyond"
    ) as caught:
        feddst.run(config, model=Network(), data=data, watcher=Silent())
    assert "\n" not in str(caught.value)
