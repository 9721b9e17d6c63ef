"""The kernels against PyTorch's own gradients in double precision, model by model."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feddst.engines.native.chain import read_chain
from feddst.engines.stacked.flat import Flat
from feddst.errors import UnsupportedModelError
from feddst.models.paper import mnist_cnn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
if sys.platform != "linux":
    pytest.skip("Triton is made for Linux", allow_module_level=True)

from feddst.engines.stacked.chain import ChainGradients, Descent  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Case:
    """M models of one network with their own weights, and images for each; the last two images only fill up."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...], *, models: int = 2, images: int = 8) -> None:
        torch.manual_seed(3)
        self.module, self.models, self.images = module, models, images
        self.chain = read_chain(module, shape)
        self.flat = Flat({name: tuple(value.shape) for name, value in module.named_parameters()})
        self.theta = torch.zeros(models, self.flat.width)
        for view in self.flat.views(self.theta).values():
            view.normal_(std=0.3)
        self.inputs = torch.randn(11, *shape)
        self.labels = torch.randint(0, 4, (11,))
        self.index = torch.randint(0, 11, (models, images))
        self.share = torch.full((models, images), 1 / (images - 2))
        self.share[:, -2:] = 0

    def kernels(self, *, exact: bool = True) -> ChainGradients:
        return ChainGradients(self.chain, self.flat, self.models, self.images, DEVICE, exact=exact)

    def given(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.inputs.to(DEVICE), self.labels.to(DEVICE), self.index.to(DEVICE), self.share.to(DEVICE)

    def gradients(self, *, exact: bool = True) -> tuple[Tensor, Tensor]:
        into, losses = torch.zeros(self.theta.shape, device=DEVICE), torch.full((self.models,), 7.0, device=DEVICE)
        for view in self.flat.views(into).values():
            view.fill_(7)
        self.kernels(exact=exact)(self.theta.to(DEVICE), into, *self.given(), losses)
        return into.cpu().double(), losses.cpu().double()

    def scores(self, model: int, weights: dict[str, Tensor]) -> Tensor:
        inputs = self.inputs[self.index[model]].double()
        scores: Tensor = torch.func.functional_call(self.module, weights, inputs)
        return scores

    def weights(self, model: int) -> dict[str, Tensor]:
        return {name: view[model].double() for name, view in self.flat.views(self.theta).items()}

    def expected(self) -> tuple[Tensor, Tensor]:
        into, losses = torch.zeros(self.theta.shape, dtype=torch.float64), []
        for model in range(self.models):
            weights = {name: value.requires_grad_() for name, value in self.weights(model).items()}
            each = F.cross_entropy(self.scores(model, weights), self.labels[self.index[model]], reduction="none")
            loss = (each * self.share[model].double()).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            for name, value in weights.items():
                assert value.grad is not None
                self.flat.view(into, name)[model] = value.grad
        return into, torch.stack(losses)

    def check(self, *, exact: bool = True, tolerance: float = 1e-5) -> None:
        (into, losses), (right, right_losses) = self.gradients(exact=exact), self.expected()
        for name in self.flat.shapes:
            found, wanted = self.flat.view(into, name), self.flat.view(right, name)
            assert (found - wanted).norm() <= tolerance * wanted.norm(), name
        torch.testing.assert_close(losses, right_losses, rtol=tolerance, atol=0)


def small_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.MaxPool2d(2, stride=1), nn.ReLU(), nn.Conv2d(3, 5, 2), nn.MaxPool2d(3, stride=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(30, 7), nn.ReLU(), nn.Linear(7, 4),
    )  # fmt: skip


def test_convolutions_pools_and_linear_layers() -> None:
    Case(small_network(), (2, 8, 9), models=3).check()


def test_padding_between_tensors_stays_as_it_is() -> None:
    case = Case(small_network(), (2, 8, 9))
    into, _ = case.gradients()
    for view in case.flat.views(into).values():
        view.zero_()
    assert not into.any()


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
def test_a_model_that_is_not_a_number_leaves_the_others_alone() -> None:
    case = Case(small_network(), (2, 8, 9), models=3)
    right, _ = case.gradients()
    case.theta[1] = torch.nan
    found, losses = case.gradients()
    assert torch.equal(found[::2], right[::2])
    assert losses.isnan().tolist() == [False, True, False]


def test_more_images_than_a_power_of_two() -> None:
    Case(small_network(), (2, 8, 9), images=24).check()


def test_a_softmax_at_the_end_goes_through_another() -> None:
    Case(nn.Sequential(small_network(), nn.Softmax(dim=1)), (2, 8, 9)).check()


def test_odd_windows_without_biases() -> None:
    layers = nn.Conv2d(1, 17, (1, 4), bias=False), nn.Conv2d(17, 3, (5, 1)), nn.Flatten(), nn.Linear(27, 4, bias=False)
    Case(nn.Sequential(*layers), (1, 7, 6)).check()


def test_relu_without_a_pool() -> None:
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2, stride=1), nn.Conv2d(4, 4, 2)
    Case(nn.Sequential(*layers, nn.Flatten(), nn.ReLU()), (1, 7, 7)).check()


def test_a_pool_before_everything() -> None:
    layers = nn.MaxPool2d(5, stride=1), nn.ReLU(), nn.Conv2d(3, 70, 3), nn.Flatten(), nn.Linear(140, 4)
    Case(nn.Sequential(*layers), (3, 7, 8)).check()


def test_vectors() -> None:
    Case(nn.Sequential(nn.Linear(1100, 70), nn.ReLU(), nn.Linear(70, 4)), (1100,), images=72).check()


def test_the_first_of_equal_maxima_gets_the_gradient() -> None:
    case = Case(small_network(), (2, 8, 9))
    case.inputs = case.inputs.sign() * (case.inputs.abs() > 1)
    case.theta = (case.theta * 3).round() / 4
    case.check()


def test_the_paper_network() -> None:
    Case(mnist_cnn((1, 13, 14), 4), (1, 13, 14), models=1).check()


def test_tf32() -> None:
    Case(nn.Sequential(nn.Conv2d(3, 20, 5), nn.Flatten(), nn.Linear(80, 4)), (3, 6, 6)).check(
        exact=False, tolerance=3e-3
    )


@pytest.mark.parametrize("exact", [True, False])
def test_a_step_is_the_gradients_and_then_descend(exact: bool) -> None:
    case = Case(small_network(), (2, 8, 9))
    velocity, received = torch.randn(2, *case.theta.shape).to(DEVICE)
    masks = torch.randint(0, 2, case.theta.shape, dtype=torch.uint8, device=DEVICE)
    awake = torch.tensor([1, 0], dtype=torch.uint8, device=DEVICE)
    descent = Descent(velocity, masks, awake, lr=0.1, momentum=0.9, l2=0.01, mu=0.5, received=received)
    theta, into, losses = case.theta.to(DEVICE), torch.zeros(case.theta.shape, device=DEVICE), velocity.new_zeros(2)
    case.kernels(exact=exact)(theta, into, *case.given(), losses)
    wanted, wanted_velocity = theta.clone(), velocity.clone()
    Descent(wanted_velocity, masks, awake, 0.1, 0.9, 0.01, 0.5, received)(wanted, into)
    case.kernels(exact=exact).step(theta := theta.clone(), into, *case.given(), losses, descent)
    for name in case.flat.shapes:
        torch.testing.assert_close(case.flat.view(theta, name), case.flat.view(wanted, name))
        torch.testing.assert_close(case.flat.view(velocity, name), case.flat.view(wanted_velocity, name))


@pytest.mark.parametrize("head", [nn.Identity(), nn.Softmax(dim=1)])
def test_forward_alone(head: nn.Module) -> None:
    case = Case(nn.Sequential(small_network(), head), (2, 8, 9))
    scores = case.kernels().forward(*(x.to(DEVICE) for x in (case.theta, case.inputs, case.index)))
    for model in range(case.models):
        wanted = case.scores(model, case.weights(model)).T
        torch.testing.assert_close(scores[model].cpu().double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Conv2d(1, 2, 3, stride=2), "convolution has strides"),
        (nn.MaxPool2d(3, stride=1, padding=1), "padding"),
        (nn.MaxPool2d((3, 2), stride=1), "3×2"),
        (nn.AvgPool2d(2), "average_pool"),
        (nn.ReLU(), "relu comes before any other layer"),
    ],
)
def test_what_the_kernels_do_not_know(layer: nn.Module, reason: str) -> None:
    module = nn.Sequential(layer, nn.Flatten())
    features = module(torch.zeros(1, 1, 8, 8)).shape[1]
    with pytest.raises(UnsupportedModelError, match=reason):
        Case(nn.Sequential(*module, nn.Linear(features, 4)), (1, 8, 8)).kernels()


def test_images_come_in_eights() -> None:
    with pytest.raises(ValueError, match="eights"):
        Case(small_network(), (2, 8, 9), images=12).kernels()


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_descend(mu: float) -> None:
    torch.manual_seed(5)
    theta, velocity, gradient, received = torch.randn(4, 3, 1056).unbind()
    masks, awake = torch.randint(0, 2, (3, 1056), dtype=torch.uint8), torch.tensor([1, 0, 1], dtype=torch.uint8)
    step = (gradient + 0.01 * theta + mu * (theta - received)) * masks
    moved = 0.9 * velocity + step
    asleep = awake[:, None] == 0
    right_velocity = torch.where(asleep, velocity, moved)
    right = torch.where(asleep, theta, theta - 0.1 * moved)
    on_device = [x.to(DEVICE).clone() for x in (theta, velocity, gradient, masks, awake)]
    weights, speeds, slopes, kept, up = on_device
    Descent(speeds, kept, up, 0.1, 0.9, 0.01, mu, received.to(DEVICE) if mu else None)(weights, slopes)
    torch.testing.assert_close(on_device[0].cpu(), right)
    torch.testing.assert_close(on_device[1].cpu(), right_velocity)
    assert torch.equal(on_device[0][1].cpu(), theta[1])
