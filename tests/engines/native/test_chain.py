"""Which modules are chains that the kernels know: these compute the same, and each of the others is refused by name."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from feddst import _native
from feddst.engines.native.chain import Chain, read_chain
from feddst.errors import UnsupportedModelError
from feddst.models import ModelConfig, network
from feddst.models.config import ModelName

IMAGES = (2, 8, 8)


def scores(chain: Chain, module: nn.Module, inputs: Tensor) -> Tensor:
    """What the kernels make of a module's weights and some inputs."""
    found = {name: value.detach().numpy() for name, value in module.named_parameters()}
    kernels = _native.Network(chain.shape, chain.layers)
    session = _native.Session(kernels, _native.supported()[0])
    session.load(
        _native.Weights(
            _native.Structure(kernels, [None] * len(chain.weights)),
            [found[name] for name in chain.weights],
            [None if name is None else found[name] for name in chain.biases],
        )
    )
    outputs = np.empty((len(inputs), kernels.outputs), np.float32)
    session.scores(inputs.numpy(), outputs)
    return torch.from_numpy(outputs)


def assert_computes_the_same(module: nn.Module, shape: tuple[int, ...]) -> Chain:
    chain = read_chain(module, shape)
    inputs = torch.randn(5, *shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = module(inputs)
    torch.testing.assert_close(scores(chain, module, inputs), expected, rtol=1e-4, atol=1e-5)
    return chain


@pytest.mark.parametrize("head", ["logits", "softmax"])
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("mnist-cnn", (1, 28, 28), 10), ("cifar10-cnn", (3, 32, 32), 10), ("cifar100-cnn", (3, 32, 32), 100)],
)
def test_the_papers_networks_are_chains(name: ModelName, shape: tuple[int, ...], classes: int, head: str) -> None:
    module = network(ModelConfig(name=name, head=head), shape, classes)  # type: ignore[arg-type]
    chain = assert_computes_the_same(module, shape)
    assert chain.shape == shape
    assert sorted(chain.names) == sorted(dict(module.named_parameters()))
    linears = ["linear", "relu"] * (2 if name == "cifar10-cnn" else 1) + ["linear"]
    expected = ["convolution", "max_pool", "relu"] * 2 + linears + ["softmax"] * (head == "softmax")
    assert [layer[0] for layer in chain.layers] == expected
    assert chain.layers[0] == ("convolution", 10 if name == "mnist-cnn" else 6, (5, 5, 1, 1, 0, 0), True, True)
    assert chain.layers[1][2] == (3, 3, 1, 1, 0, 0)


def test_a_resnet_is_no_chain() -> None:
    with pytest.raises(UnsupportedModelError):
        read_chain(network(ModelConfig(name="resnet18"), (3, 32, 32), 10), (3, 32, 32))


def body() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


class Renamed(nn.Sequential):
    """A Sequential that only looks different."""


ACCEPTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "nested": (
        lambda: nn.Sequential(OrderedDict(body=body(), head=nn.Sequential(nn.Flatten(), nn.Linear(48, 4)))),
        IMAGES,
        ["body.0.weight", "head.1.weight", "body.0.bias", "head.1.bias"],
    ),
    "subclass of Sequential": (
        lambda: Renamed(body(), nn.Flatten(), nn.Linear(48, 4)),
        IMAGES,
        ["0.0.weight", "2.weight", "0.0.bias", "2.bias"],
    ),
    "no Sequential": (lambda: nn.Linear(6, 3), (6,), ["weight", "bias"]),
    "vectors": (
        lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)),
        (6,),
        ["0.weight", "2.weight", "2.bias"],
    ),
    "flattened vectors": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.Softmax(dim=-1)),
        (6,),
        ["1.weight", "1.bias"],
    ),
    "layers that do nothing": (
        lambda: nn.Sequential(nn.Identity(), nn.Flatten(1, 3), nn.Dropout(0.0), nn.Linear(128, 4), nn.Identity()),
        IMAGES,
        ["3.weight", "3.bias"],
    ),
    "windows of every kind": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, (3, 5), padding="same", bias=False),
            nn.ReLU(inplace=True),
            nn.AvgPool2d((3, 2), stride=(1, 2), padding=1, count_include_pad=False),
            nn.Conv2d(3, 4, (2, 3), stride=(2, 1), padding=(1, 0), padding_mode="zeros"),
            nn.MaxPool2d(3, stride=(1, 2), padding=(1, 0)),
            nn.Conv2d(4, 5, 1, padding="valid"),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        IMAGES,
        ["0.weight", "3.weight", "5.weight", "3.bias", "5.bias"],
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_chains_compute_what_their_modules_compute(name: str) -> None:
    make, shape, names = ACCEPTED[name]
    assert assert_computes_the_same(make(), shape).names == names


def test_a_chain_says_which_layers_have_no_bias() -> None:
    chain = read_chain(nn.Sequential(nn.Linear(6, 5, bias=False), nn.Linear(5, 3)), (6,))
    assert chain.weights == ("0.weight", "1.weight")
    assert chain.biases == (None, "1.bias")
    assert chain.shape == (6, 1, 1)


# Refusals. In all of them the layer that is to blame is called `odd`.


def around(odd: nn.Module, features: int = 4) -> nn.Sequential:
    """A chain with one layer that does not belong, somewhere before its head."""
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(2, 4, 3), odd=odd, flat=nn.Flatten(), fc=nn.Linear(features, 4)))


class OwnForward(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x) + 1
        return x


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x)  # type: ignore[no-any-return]


class SmallestPool(nn.MaxPool2d):
    def forward(self, x: Tensor) -> Tensor:
        return -F.max_pool2d(-x, self.kernel_size)


class DoubleAverage(nn.AvgPool2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class DoubleGlobal(nn.AdaptiveAvgPool2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class DoubleLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class DoubleConv(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class DoubleSoftmax(nn.Softmax):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class NoisyDropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def hooked(register: str) -> nn.Module:
    odd = nn.Conv2d(4, 4, 1)
    getattr(odd, register)(lambda *_: None)
    return around(odd, 144)


def linear_after(odd: nn.Module, before: int, after: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), fc=nn.Linear(128, before), odd=odd, head=nn.Linear(after, 4)))


class Scaled(nn.Sequential):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.odd = nn.Parameter(torch.ones(1))


def tempered() -> nn.Module:
    linear = nn.Linear(128, 4)
    linear.register_parameter("odd", nn.Parameter(torch.ones(1)))
    return nn.Sequential(nn.Flatten(), linear)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "BatchNorm2d": (lambda: around(nn.BatchNorm2d(4), 144), r"layer odd \(BatchNorm2d\)"),
    "BatchNorm1d without running means": (
        lambda: linear_after(nn.BatchNorm1d(4, track_running_stats=False), 4, 4),
        "layer odd",
    ),
    "InstanceNorm2d": (lambda: around(nn.InstanceNorm2d(4), 144), "layer odd"),
    "Dropout": (lambda: around(nn.Dropout(0.5), 144), r"layer odd \(Dropout\)"),
    "groups": (lambda: around(nn.Conv2d(4, 4, 3, groups=2), 64), r"layer odd \(Conv2d\) has groups=2"),
    "dilation": (lambda: around(nn.Conv2d(4, 4, 3, dilation=2), 16), r"layer odd .* has dilation=\(2, 2\)"),
    "padding_mode": (
        lambda: around(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), 144),
        "layer odd .* has padding_mode='reflect'",
    ),
    "same with an even kernel": (lambda: around(nn.Conv2d(4, 4, 2, padding="same"), 144), "layer odd .* even"),
    "ceil_mode of a maximum": (lambda: around(nn.MaxPool2d(4, ceil_mode=True), 16), "layer odd .* ceil_mode=True"),
    "ceil_mode of an average": (lambda: around(nn.AvgPool2d(4, ceil_mode=True), 16), "layer odd .* ceil_mode=True"),
    "dilated maximum": (lambda: around(nn.MaxPool2d(3, dilation=2), 4), "layer odd .* has dilation=2"),
    "indices of a maximum": (lambda: around(nn.MaxPool2d(2, return_indices=True), 36), "layer odd .* return_indices"),
    "divisor_override": (
        lambda: around(nn.AvgPool2d(2, divisor_override=3), 36),
        "layer odd .* has divisor_override=3",
    ),
    "adaptive average": (lambda: around(nn.AdaptiveAvgPool2d(2), 16), "layer odd"),
    "adaptive average in one direction": (lambda: around(nn.AdaptiveAvgPool2d((None, 1)), 24), "layer odd"),
    "adaptive maximum": (lambda: around(nn.AdaptiveMaxPool2d(1), 4), "layer odd"),
    "Sigmoid": (lambda: around(nn.Sigmoid(), 144), r"layer odd \(Sigmoid\)"),
    "LeakyReLU": (lambda: around(nn.LeakyReLU(), 144), r"layer odd \(LeakyReLU\)"),
    "ReLU6": (lambda: around(nn.ReLU6(), 144), r"layer odd \(ReLU6\)"),
    "Sequential with its own forward": (
        lambda: around(OwnForward(nn.Conv2d(4, 4, 1)), 144),
        r"layer odd \(OwnForward\)",
    ),
    "no Sequential": (lambda: around(Residual(), 144), r"layer odd \(Residual\)"),
    "hooks": (lambda: hooked("register_forward_hook"), r"layer odd \(Conv2d\) has hooks"),
    "pre-hooks": (lambda: hooked("register_forward_pre_hook"), "layer odd .* has hooks"),
    "backward hooks": (lambda: hooked("register_full_backward_hook"), "layer odd .* has hooks"),
    "backward pre-hooks": (lambda: hooked("register_full_backward_pre_hook"), "layer odd .* has hooks"),
    "float64": (lambda: around(nn.Conv2d(4, 4, 1, dtype=torch.float64), 144), r"odd\.weight is torch\.float64"),
    "bfloat16": (lambda: around(nn.Conv2d(4, 4, 1, dtype=torch.bfloat16), 144), r"odd\.weight is torch\.bfloat16"),
    "parametrization": (lambda: around(parametrizations.weight_norm(nn.Conv2d(4, 4, 1)), 144), "layer odd"),
    "Flatten from the second dimension": (
        lambda: nn.Sequential(OrderedDict(odd=nn.Flatten(2), fc=nn.Linear(64, 4))),
        r"layer odd \(Flatten\)",
    ),
    "Flatten of half the dimensions": (
        lambda: nn.Sequential(OrderedDict(odd=nn.Flatten(1, 2), fc=nn.Linear(8, 4))),
        r"layer odd \(Flatten\)",
    ),
    "Flatten of the images too": (lambda: nn.Sequential(OrderedDict(odd=nn.Flatten(0))), r"layer odd \(Flatten\)"),
    "Linear on images": (lambda: around(nn.Linear(6, 6), 144), r"layer odd \(Linear\)"),
    "Softmax over images": (lambda: around(nn.Softmax(dim=1), 144), r"layer odd \(Softmax\)"),
    "Softmax over the batch": (lambda: linear_after(nn.Softmax(dim=0), 4, 4), r"layer odd \(Softmax\)"),
    "another maximum": (lambda: around(SmallestPool(2), 36), r"layer odd \(SmallestPool\)"),
    "another average": (lambda: around(DoubleAverage(2), 36), r"layer odd \(DoubleAverage\)"),
    "another global average": (lambda: around(DoubleGlobal(1), 4), r"layer odd \(DoubleGlobal\)"),
    "another Conv2d": (lambda: around(DoubleConv(4, 4, 1), 144), r"layer odd \(DoubleConv\)"),
    "another Linear": (lambda: linear_after(DoubleLinear(4, 4), 4, 4), r"layer odd \(DoubleLinear\)"),
    "another Softmax": (lambda: linear_after(DoubleSoftmax(1), 4, 4), r"layer odd \(DoubleSoftmax\)"),
    "another Dropout": (lambda: around(NoisyDropout(0.0), 144), r"layer odd \(NoisyDropout\)"),
    "a wide maximum": (
        lambda: nn.Sequential(OrderedDict(conv=nn.Conv2d(2, 4, 1, padding=64), odd=nn.MaxPool2d((2, 130)))),
        r"layer odd \(MaxPool2d\) has kernel_size=\(2, 130\), more than 127",
    ),
    "Linear after Softmax": (
        lambda: nn.Sequential(OrderedDict(flat=nn.Flatten(), soft=nn.Softmax(dim=1), odd=nn.Linear(128, 4))),
        r"layer odd \(Linear\) follows a Softmax",
    ),
    "scores from several pixels": (
        lambda: nn.Sequential(OrderedDict(odd=nn.Conv2d(2, 1, 7), flat=nn.Flatten(), relu=nn.ReLU())),
        r"layer odd \(Conv2d\) gives scores of shape \(1, 2, 2\)",
    ),
    "scores that are images": (
        lambda: nn.Sequential(OrderedDict(odd=nn.Conv2d(2, 4, 8))),
        r"layer odd \(Conv2d\) gives scores of shape \(4, 1, 1\)",
    ),
    "a parameter beside the layers": (lambda: Scaled(nn.Flatten(), nn.Linear(128, 4)), "^odd is a parameter of no"),
    "a parameter added to a layer": (tempered, r"^1\.odd is a parameter of no layer"),
    "LSTM": (lambda: linear_after(nn.LSTM(4, 4), 4, 4), r"layer odd \(LSTM\)"),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", REFUSED)
def test_other_modules_are_refused_by_the_name_of_the_layer(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        read_chain(make(), IMAGES)


def test_the_whole_module_may_be_what_does_not_fit() -> None:
    with pytest.raises(UnsupportedModelError, match="Residual"):
        read_chain(Residual(), (4, 8, 8))
    with pytest.raises(UnsupportedModelError, match="OwnForward"):
        read_chain(OwnForward(nn.Flatten(), nn.Linear(128, 4)), IMAGES)


def test_a_forward_that_was_put_into_a_module_by_hand_is_seen() -> None:
    module = around(nn.ReLU(), 144)
    module.odd.forward = torch.sigmoid  # type: ignore[union-attr]
    with pytest.raises(UnsupportedModelError, match="odd"):
        read_chain(module, IMAGES)


@pytest.mark.parametrize("shape", [(), (4, 4), (2, 4, 4, 4)])
def test_inputs_that_are_neither_images_nor_vectors_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedModelError, match="neither images nor vectors"):
        read_chain(nn.Linear(4, 4), shape)


def shared(*, nested: bool) -> nn.Sequential:
    twice = nn.Linear(4, 4)
    layers = OrderedDict[str, nn.Module](fc=nn.Linear(6, 4), odd=twice, relu=nn.ReLU())
    layers["again"] = nn.Sequential(twice) if nested else twice
    return nn.Sequential(layers)


def tied() -> nn.Sequential:
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = one.weight
    return nn.Sequential(OrderedDict(fc=nn.Linear(6, 4), odd=one, relu=nn.ReLU(), again=two))


@pytest.mark.parametrize("make", [lambda: shared(nested=False), lambda: shared(nested=True), tied])
def test_layers_that_share_their_weights_are_refused_by_name(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(UnsupportedModelError, match=r"odd|again"):
        read_chain(make(), (6,))


def test_a_layer_without_weights_may_occur_twice() -> None:
    relu = nn.ReLU()
    assert_computes_the_same(nn.Sequential(nn.Linear(6, 9), relu, nn.Linear(9, 9), relu, nn.Linear(9, 4)), (6,))


@pytest.mark.parametrize("name", ["Dropout", "BatchNorm2d", "InstanceNorm2d", "parametrization"])
def test_reading_a_chain_changes_nothing(name: str) -> None:
    """Neither the module's tensors nor PyTorch's random numbers, which the user may have seeded."""
    module, before = REFUSED[name][0](), torch.random.get_rng_state()
    tensors = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(UnsupportedModelError):
        read_chain(module, IMAGES)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(value, tensors[name]) for name, value in module.state_dict().items())
