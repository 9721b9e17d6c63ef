"""Networks that predict the next token at each position: LEAF's LSTM for characters, and a small transformer.

Inputs are token ids [examples, positions], outputs scores [examples, vocabulary, positions], as `F.cross_entropy` takes
them. What a position is given never depends on later ones.
"""

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from feddst.errors import ModelError

Shape = tuple[int, ...]


def char_lstm(input_shape: Shape, classes: int) -> nn.Sequential:
    """The size of LEAF's: embeddings of 8, two layers of 256 units. LEAF predicts after the last position only."""
    return lstm(input_shape, classes, width=8, hidden=256, layers=2)


def char_transformer(input_shape: Shape, classes: int) -> nn.Sequential:
    """Two layers, 128 wide, with four heads."""
    return transformer(input_shape, classes, width=128, heads=4, layers=2)


def lstm(input_shape: Shape, classes: int, *, width: int, hidden: int, layers: int) -> nn.Sequential:
    """Token embeddings of `width`, `layers` LSTM layers of `hidden` units, and a linear layer."""
    _length(input_shape, "an LSTM for text")
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    chain["embedding"] = nn.Embedding(classes, width)
    chain["lstm"] = Recurrent(width, hidden, layers, batch_first=True)
    chain["output"] = nn.Linear(hidden, classes)
    chain["scores"] = ClassesFirst()
    return nn.Sequential(chain)


def transformer(input_shape: Shape, classes: int, *, width: int, heads: int, layers: int) -> nn.Sequential:
    """Token and position embeddings of `width`, `layers` blocks with `heads` heads, a norm and a linear layer."""
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    length = _length(input_shape, "a transformer")
    chain["embedding"] = nn.Embedding(classes, width)
    chain["positions"] = Positions(length, width)
    for number in range(1, layers + 1):
        chain[f"block{number}"] = Block(width, heads)
    chain["norm"] = nn.LayerNorm(width)
    chain["output"] = nn.Linear(width, classes)
    chain["scores"] = ClassesFirst()
    return nn.Sequential(chain)


class Recurrent(nn.LSTM):
    """An LSTM's outputs alone, without its last state."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        outputs, _ = super().forward(x)
        return outputs


class Positions(nn.Module):
    """Adds a learned vector to each of at most `length` positions; inputs: [examples, positions, width]."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.vectors[: x.shape[1]]


class Attention(nn.Module):
    """Each position attends to itself and to earlier ones; inputs: [examples, positions, width].

    Of linear layers, so that each projection has a mask and a budget of its own.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._heads(project(x)) for project in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ value
        found: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return found

    def _heads(self, x: Tensor) -> Tensor:
        """[examples, heads, positions, width / heads]."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Block(nn.Module):
    """Attention and two linear layers, each after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.relu = nn.ReLU()
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        found: Tensor = x + self.narrow(self.relu(self.wide(self.norm2(x))))
        return found


class ClassesFirst(nn.Module):
    """[examples, positions, classes] as [examples, classes, positions]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def _length(input_shape: Shape, network: str) -> int:
    if len(input_shape) != 1:
        raise ModelError(f"{network} takes rows of token ids, got inputs of shape {input_shape}")
    return input_shape[0]
