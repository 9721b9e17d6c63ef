"""What a client sends beside its weights: gradients, their squares, Hessian-vector products, signs."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feddst.clients.client import Client
from feddst.clients.steps.squares import Squares, gather
from feddst.core import ClientPlan, LocalTraining, Tensors, generator, minibatches, objective_of
from feddst.core.batches import call, divided
from feddst.core.minibatches import Indices, balanced
from feddst.core.registry import register
from feddst.core.step import ClientStep
from feddst.errors import DivergenceError, ModelError, WireError
from feddst.wire import ClientTask

_ATTENTION = threading.Lock()


@register
@dataclass(frozen=True)
class Report(ClientStep):
    """One more dense tensor to send back for each parameter.

    `gradient` is the task loss's mean gradient g, `hessian-gradient` is Hg with the loss's Hessian H. `sign` is, for
    each weight, +1 with probability (b + g)/2b and otherwise −1, where b is `bound` and g is clipped to −b … b. They
    are taken at the client's final weights, over `images`: all, one random minibatch, one with equally many images of
    each class it holds, or all minibatches of an epoch; Hg is then that of the sum of their mean losses. The network's
    outputs are divided by `temperature` first. If `within` names parameters, g and H of Hg are those of these alone,
    and the others get 0.

    `squared-gradient` is the mean of g² over the steps of the round, where g is the dense gradient of a step's
    minibatch before the step. None of the above applies to it.
    """

    name: ClassVar[str] = "report"

    kind: Literal["gradient", "hessian-gradient", "sign", "squared-gradient"]
    images: Literal["all", "minibatch", "balanced", "minibatches"] = "all"
    temperature: float = 1.0
    bound: float = 1.0
    within: frozenset[str] = frozenset()

    @property
    def looks_at_batches(self) -> bool:
        return self.kind == "squared-gradient"

    def before_batch(self, client: Client, batch: Indices) -> None:
        gather(client, client.scratch.setdefault(self.kind, Squares()), batch)

    def reports(self, client: Client) -> Mapping[str, Tensors]:
        sent = client.task.sent.broadcast.params
        return {self.kind: {name: value.cpu() for name, value in _tensors(client, self).items() if name in sent}}

    @property
    def groups(self) -> tuple[str, ...]:
        return (self.kind,)

    def check_report(self, group: str, name: str, value: Tensor) -> None:
        if self.kind == "squared-gradient" and (value < 0).any():
            raise WireError(f"{name} of {group} holds {float(value.min()):g}, which cannot be negative")

    def differentiated(self, plan: ClientPlan, images: int) -> int:
        if self.kind == "squared-gradient":
            return images * plan.passes
        looked_at = images if self.images in ("all", "minibatches") else min(plan.local.batch, images)
        return looked_at * (2 if self.kind == "hessian-gradient" else 1)


class Differentiable(Protocol):
    """A client whose model autograd can differentiate."""

    task: ClientTask

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]: ...


def _tensors(client: Client, report: Report) -> Tensors:
    examples, local = client.examples, client.task.plan.local
    if report.kind == "squared-gradient":
        squares: Squares = client.scratch.get(report.kind, Squares())
        return squares.mean(client.task.sent.broadcast.params)
    batches = [
        torch.from_numpy(batch).to(examples.device)
        for batch in reported_batches(examples.classes, report, local, *client.draw)
    ]
    if report.kind == "hessian-gradient":
        return hessian_gradient(client, batches, report)
    if report.kind == "sign":
        refuse_frozen(client.differentiable()[0])
    gradient = client.mean_gradient(torch.cat(batches), report.temperature)
    return signs(gradient, report.bound, *client.draw) if report.kind == "sign" else gradient


def reported_batches(
    labels: Indices, report: Report, local: LocalTraining, seed: int, round: int, client: int
) -> list[Indices]:
    """The indices, into a client's images with these labels, for a report: usually one batch."""
    draws = generator(seed, f"images of {report.kind}", round, client)
    if report.images == "all":
        return [np.arange(len(labels))]
    if report.images == "minibatch":
        return [draws.permutation(len(labels))[: local.batch].astype(np.int64, copy=False)]
    if report.images == "minibatches":
        return minibatches(len(labels), replace(local, epochs=1), seed, round, client)[0]
    return [balanced(labels, local.batch, draws)]


def hessian_gradient(client: Differentiable, batches: Sequence[Tensor], report: Report) -> dict[str, Tensor]:
    """Hg: the gradient of g·v for v = g held constant."""
    module, params = client.differentiable()
    module.eval()
    loss = torch.stack([_loss(module, client.task, batch, report.temperature) for batch in batches]).sum()
    chosen = {name: value for name, value in params.items() if value.requires_grad and _within(name, report)}
    weights = list(chosen.values())
    first = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    product = torch.stack([(g * g.detach()).sum() for g in first]).sum()
    second = torch.autograd.grad(product, weights, materialize_grads=True)
    module.train()
    still = {name: torch.zeros_like(value) for name, value in params.items()}
    return still | {name: value.detach() for name, value in zip(chosen, second, strict=True)}


def _loss(module: nn.Module, task: ClientTask, images: Tensor, temperature: float) -> Tensor:
    """The mean loss on some examples, with second derivatives."""
    seen = task.examples.at(images)
    # Attention's faster kernels have none; the choice applies to all threads.
    with _ATTENTION, sdpa_kernel(SDPBackend.MATH):
        outputs = divided(call(module, seen.inputs), temperature)
    return objective_of(task.plan.local).loss(outputs, seen.targets)


def _within(name: str, report: Report) -> bool:
    return not report.within or name in report.within


def refuse_frozen(module: nn.Module) -> None:
    """Raise if a parameter is not trained."""
    for name, value in module.named_parameters():
        if not value.requires_grad:
            raise ModelError(f"{name} is frozen, but a vote is +1 or −1: it would be moved")


def signs(gradient: Tensors, bound: float, seed: int, round: int, client: int) -> dict[str, Tensor]:
    """+1 with probability (b + g)/2b and otherwise −1, for each weight; drawn in the order of names."""
    draws = generator(seed, "signs", round, client)
    votes: dict[str, Tensor] = {}
    for name, g in sorted(gradient.items()):
        if not torch.isfinite(g).all():
            raise DivergenceError(f"client {client} diverged in round {round}: its gradient of {name} is not finite")
        uniform = torch.from_numpy(draws.random(tuple(g.shape), dtype=np.float32)).to(g.device)
        chance = (1 + (g.float() / bound).clamp(-1, 1)) / 2
        votes[name] = torch.where(uniform < chance, 1.0, -1.0)
    return votes
