"""Users' own modules, as people write them, from the first round to the last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.data import Dataset
from feddst.errors import ModelError
from feddst.runtime import RunConfig, run
from feddst.runtime.tensorfile import unpack

Configure = Callable[..., RunConfig]


class Tutorial(nn.Module):
    """A CNN as PyTorch's tutorial has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4 * 4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.conv(x).relu().view(-1, 4 * 4 * 4))


@pytest.fixture
def coloured(small_data: Dataset) -> Dataset:
    train, test = (images.expand(-1, 3, 6, 6) for images in (small_data.train_images, small_data.test_images))
    return Dataset.from_arrays((train, small_data.train_labels), (test, small_data.test_labels))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine__kind": "reference", "engine__workers": 2},
        {"engine__kind": "stacked"},
        {"method": "prunefl", "prunefl__layer_times": "measured"},
        {"method": "grasp"},
        {"method": "lotteryfl"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()) or "native",
)
def test_the_tutorial_network_trains(
    changes: dict[str, Any], small_config: Configure, coloured: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(small_config(rounds=2, **changes), model=Tutorial, data=coloured)
    assert result.finished
    scores = result.model(coloured.inputs(coloured.test_images))
    right = (scores.argmax(dim=1) == coloured.test_labels).float().mean()
    assert result.rows[-1].score_global == pytest.approx(float(right))


def test_the_tutorial_network_is_exported(small_config: Configure, coloured: Dataset, tmp_path: Path) -> None:
    result = run(small_config(rounds=1), model=Tutorial, data=coloured, out=tmp_path / "run")
    written = feddst.export(result, "safetensors", tmp_path / "one.safetensors", model=Tutorial, data=coloured)
    loaded, inputs = feddst.load(written.path, model=Tutorial), coloured.inputs(coloured.test_images)
    assert torch.equal(loaded(inputs), result.model(inputs))


@pytest.mark.parametrize("kind", ["native", "reference", "stacked"])
def test_what_clients_keep_is_stored_in_an_order_of_its_own(
    kind: str, small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    """A set's order is another in each process: eight names are sorted by chance once in 40,320."""

    def deep() -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), *(nn.Linear(5, 5) for _ in range(3)), nn.Linear(5, 4))

    config = small_config(method="lg-fedavg", rounds=1, engine__kind=kind, lg__shared_layers=1)
    run(config, model=deep, data=small_data, out=tmp_path / "run")
    tensors, _ = unpack((tmp_path / "run" / "checkpoint.safetensors").read_bytes())
    kept = [name for name in tensors if name.startswith("client ")]
    assert len(kept) == 4 * 8
    assert kept == sorted(kept)


class Recurrent(nn.Module):
    """Six steps of six values, forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.LSTM(6, 20, bidirectional=True, batch_first=True), nn.Linear(40, 4)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.rnn(x[:, 0])[0].mean(1))


class Attending(nn.Module):
    """Six places of six values, as a vision transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.fc = nn.Linear(6, 16), nn.Linear(16, 4)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.encoder(self.first(x[:, 0])).mean(1))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's, of vmap
@pytest.mark.parametrize("kind", ["reference", "stacked"])
@pytest.mark.parametrize(
    ("model", "name"), [(Recurrent, "rnn.weight_hh_l0_reverse"), (Attending, "encoder.self_attn.in_proj_weight")]
)
def test_recurrent_layers_and_attention_become_sparse(
    model: Any, name: str, kind: str, small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    config = small_config(rounds=3, engine__kind=kind)
    result = run(config, model=model, data=small_data, out=tmp_path / "run")
    weights = dict(result.model.named_parameters())
    assert all(bool((weights[layer][~mask] == 0).all()) for layer, mask in result.masks.items())
    assert int(weights[name].count_nonzero()) == int(result.masks[name].sum()) < weights[name].numel()
    row, first = result.rows[-1], run(small_config(rounds=1, engine__kind=kind), model=model, data=small_data)
    assert not torch.equal(result.masks[name], first.masks[name])  # what left, and what grew in its place
    kept = sum(int(weight.count_nonzero()) for weight in weights.values())
    size = sum(weight.numel() for weight in weights.values())
    assert row.density_all == result.summary.density_all == pytest.approx(kept / size, abs=0.001)
    assert row.density == pytest.approx(0.2, abs=0.01)
    # A client's update is its active values and its mask, of a bit a weight at the most, and a header.
    assert row.upload_bytes < 3 * 4 * (4 * kept + size / 8 + 256)


@pytest.mark.parametrize("model", [Recurrent, Attending])
@pytest.mark.parametrize("form", ["safetensors", "sparse"])
def test_what_became_sparse_is_exported_so(
    model: Any, form: Any, small_config: Configure, small_data: Dataset, tmp_path: Path
) -> None:
    result = run(small_config(rounds=1), model=model, data=small_data, out=tmp_path / "run")
    written = feddst.export(result, form, tmp_path / "one", model=model, data=small_data)
    loaded, inputs = feddst.load(written.path, model=model), small_data.inputs(small_data.test_images)
    assert torch.equal(loaded(inputs), result.model(inputs))
    zeros = {name: int((value == 0).sum()) for name, value in loaded.named_parameters()}
    assert all(zeros[name] == int((~mask).sum()) for name, mask in result.masks.items())


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


@pytest.mark.parametrize("kind", ["native", "stacked"])
@pytest.mark.parametrize(("method", "images"), [("feddst", 1), ("feddst", 11), ("lotteryfl", 2)])
def test_a_client_with_one_image_trains_a_batchnorm(
    method: str, images: int, kind: str, small_config: Configure, small_data: Dataset
) -> None:
    """The other client has twenty. Eleven in minibatches of five: the last of one image joins the one before."""
    parts, labels = small_data.train_images, small_data.train_labels
    clients = [(parts[:images], labels[:images]), (parts[20:40], labels[20:40])]
    federation = feddst.Federation.from_clients(train=clients, test=(small_data.test_images, small_data.test_labels))
    config = small_config(method=method, rounds=2, engine__kind=kind, cohort__size=2, data__clients=2)
    result = run(config, model=normed, data=federation)
    assert [row.clients for row in result.rows] == [2, 2]


def test_minibatches_of_one_image_are_refused_before_training(small_config: Configure, small_data: Dataset) -> None:
    with pytest.raises(ModelError, match=r"local\.batch must be at least 2"):
        run(small_config(local__batch=1), model=normed, data=small_data)


class Tied(nn.Module):
    """A weight that an embedding and an output layer share."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.middle, self.output = nn.Embedding(4, 5), nn.Linear(5, 5), nn.Linear(5, 4)
        self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Any:
        return self.output(self.middle(self.embedding(x)).mean(dim=1))


@pytest.fixture
def tokens() -> Dataset:
    """Rows of three tokens of four kinds, in four classes."""
    drawn = torch.randint(0, 4, (160, 3), generator=torch.Generator().manual_seed(0))
    return Dataset.from_arrays((drawn, torch.arange(160) % 4), (drawn[:8], torch.arange(8) % 4))


@pytest.mark.parametrize("kind", ["reference", "stacked"])
@pytest.mark.parametrize("prunable", [(), ("output", "middle")])
def test_a_shared_weight_is_trained_and_sent_once(
    kind: str, prunable: tuple[str, ...], small_config: Configure, tokens: Dataset
) -> None:
    config = small_config(rounds=2, engine__kind=kind, model__prunable=prunable)
    result = run(config, model=Tied, data=tokens)
    # 20 + 25 weights, of which those that are named are masked, and 4 + 5 biases.
    assert {name: mask.numel() for name, mask in result.masks.items()} == (
        {"embedding.weight": 20, "middle.weight": 25} if prunable else {"middle.weight": 25}
    )
    trained, first = result.model.get_parameter("output.weight"), Tied().get_parameter("output.weight")
    assert trained is result.model.get_parameter("embedding.weight")
    assert not torch.equal(trained, first)
    active = sum(int(mask.sum()) for mask in result.masks.values())
    values = active + (0 if prunable else 20) + 9
    # Each of the clients' last updates has so many float32 values, and little beside them.
    sent = result.rows[-1].upload_bytes / 2 / config.cohort.size
    assert 4 * values < sent < 4 * values + 60


def test_a_shared_weight_is_exported(small_config: Configure, tokens: Dataset, tmp_path: Path) -> None:
    result = run(small_config(rounds=1, model__prunable=("output",)), model=Tied, data=tokens, out=tmp_path / "run")
    written = feddst.export(result, "safetensors", tmp_path / "tied.safetensors", model=Tied, data=tokens)
    loaded, inputs = feddst.load(written.path, model=Tied), tokens.inputs(tokens.test_images)
    assert torch.equal(loaded(inputs), result.model(inputs))
