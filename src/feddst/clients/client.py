"""One client's round, whatever trains it: what it begins with, its epochs, and what it sends back."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from feddst.clients.lottery import take_ticket
from feddst.clients.readjust import growth_images, random_scores, readjust
from feddst.clients.reports import make_reports
from feddst.clients.settling import choose_masks, density, settled
from feddst.clients.squares import Squares, wanted
from feddst.clients.task import Job, Outcome
from feddst.core import Growth, Masks, Positions, Readjustment, Settling, Tensors, Update, minibatches
from feddst.core.minibatches import Indices
from feddst.errors import DivergenceError
from feddst.methods.lotteryfl import kept_masks


@dataclass
class Client(ABC):
    """A client in the middle of its round.

    `velocity` is SGD's momentum, new each round. Where an engine keeps both elsewhere while it trains, `params` and
    `velocity` are up to date after `expose`, and what was changed in them counts from `adopt` on. `squares` are the
    squared gradients so far, if the work asks for them, and `settled` are the masks that it settled on, if it did.
    """

    job: Job
    masks: Masks
    params: dict[str, Tensor]
    velocity: dict[str, Tensor]
    squares: Squares = field(init=False, default_factory=Squares)
    settled: Masks = field(init=False, default_factory=dict)

    @abstractmethod
    def epochs(self, epochs: Sequence[Sequence[Indices]]) -> list[float]:
        """For each epoch an SGD step on each of its minibatches.

        Returns the sum of the images' losses, each before its step, for each epoch.
        """

    @abstractmethod
    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]:
        """The task loss's gradient averaged over `images`, dense, with dropout off and BatchNorm frozen.

        The network's outputs are divided by `temperature`.
        """

    @abstractmethod
    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        """A module with the client's weights in it, for what only autograd can do, and its parameters."""

    @abstractmethod
    def expose(self) -> None:
        """Bring `params` and `velocity` up to date."""

    @abstractmethod
    def final(self, positions: Positions | None) -> dict[str, Tensor]:
        """The weights at the end, packed, on the CPU, in memory that nobody else uses.

        `positions` are those of the weights that the masks keep, if they are known.
        """

    @abstractmethod
    def adopt(self, masks: Masks) -> None:
        """Go on with these masks, and with `params` and `velocity` as they are."""

    def readjust(self, orders: Readjustment, last_batch: Indices) -> None:
        """Readjust the masks, after an epoch that ended with this minibatch."""
        self.expose()
        with torch.no_grad():
            self.adopt(_readjusted(self, orders, last_batch))

    @abstractmethod
    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers as they are now."""


@dataclass(frozen=True)
class Beginning:
    """What a client begins its training with."""

    job: Job
    masks: Masks
    weights: Tensors


def beginning(module: nn.Module, job: Job) -> Beginning:
    """The job on the images that are trained on, with the client's masks and weights; `module` may be overwritten."""
    sent, work = job.broadcast, job.work
    own = {name: job.state.tensors.get(name, job.initial[name]) for name in sorted(work.keep)}
    weights: Tensors = {**sent.params, **own}
    if work.ticket is None:
        return Beginning(job, sent.masks, weights)
    trained, masks, weights = take_ticket(module, job, work.ticket)
    return Beginning(replace(job, inputs=job.inputs[trained], labels=job.labels[trained]), masks, weights)


def train(client: Client) -> float:
    """All epochs, with the readjustment after its own; returns the last epoch's mean loss."""
    job, work = client.job, client.job.work
    if work.settle is not None:
        return _settle(client, work.settle)
    epochs = minibatches(len(job.labels), work.local, job.seed, job.broadcast.round, job.client)
    if work.readjust is None:
        return _epochs(client, epochs, done=0)
    # A straggler that stops before its time readjusts after its last epoch.
    before = min(work.readjust.after_epoch, len(epochs))
    loss = _epochs(client, epochs[:before], done=0)
    client.readjust(work.readjust, last_batch=epochs[before - 1][-1])
    return _epochs(client, epochs[before:], done=before) if before < len(epochs) else loss


def _readjusted(client: Client, orders: Readjustment, last_batch: Indices) -> Masks:
    """The client's new masks; what was dropped or grown is zeroed in it."""
    job, of = client.job, (client.job.seed, client.job.broadcast.round, client.job.client)

    def scores() -> Tensors:
        if orders.growth.rule == "random":
            return _alone(random_scores(client.masks, *of))
        chosen = torch.from_numpy(grown_by(job, orders.growth, last_batch))
        with torch.enable_grad():
            gradient = client.mean_gradient(chosen.to(job.inputs.device))
        return {name: g.abs()[None] for name, g in gradient.items()}

    params = {name: value.detach() for name, value in client.params.items()}
    masks = readjust(_alone(params), _alone(client.velocity), _alone(client.masks), orders, scores)
    return {name: mask[0] for name, mask in masks.items()}


def grown_by(job: Job, growth: Growth, last_batch: Indices) -> Indices:
    """Which of its images a client averages the growth gradient over."""
    if growth.images == "last-batch":
        return last_batch
    return growth_images(len(job.labels), growth, job.seed, job.broadcast.round, job.client)


def _alone(tensors: Tensors) -> Tensors:
    """One client's tensors as those of one client side by side, in the same memory."""
    return {name: value[None] for name, value in tensors.items()}


def _epochs(client: Client, epochs: Sequence[Sequence[Indices]], done: int) -> float:
    """Some epochs, after so many; returns the last one's mean loss."""
    job = client.job
    sums = _gathering(client, epochs) if wanted(job.work) else client.epochs(epochs)
    losses = [total / len(job.labels) for total in sums]
    for epoch, loss in enumerate(losses, done + 1):
        refuse_diverged(loss, epoch, job.client, job.broadcast.round, job.work.local.lr)
    return losses[-1]


def _settle(client: Client, orders: Settling) -> float:
    """All rounds of PruneFL's first stage; returns the last one's mean loss. The masks are again as they were."""
    job, sent, densities, loss = client.job, client.masks, list[float](), 0.0
    local = replace(job.work.local, epochs=orders.rounds)
    rounds = minibatches(len(job.labels), local, job.seed, job.broadcast.round, job.client)
    for r, batches in enumerate(rounds, 1):
        [total] = _gathering(client, [batches])
        loss = total / len(job.labels)
        refuse_diverged(loss, r, job.client, job.broadcast.round, local.lr)
        if r % orders.every == 0:
            client.expose()
            client.adopt(choose_masks(client.params, client.velocity, client.masks, client.squares, orders))
            client.squares = Squares()
            densities.append(density(client.masks))
        if settled(densities, orders):
            break
    client.expose()
    client.settled = client.masks
    client.adopt(sent)
    return loss


def _gathering(client: Client, epochs: Sequence[Sequence[Indices]]) -> list[float]:
    """What `Client.epochs` does, with the squared gradient of each step's minibatch gathered before it."""
    return [sum(_gathered_step(client, batch) for batch in epoch) for epoch in epochs]


def _gathered_step(client: Client, batch: Indices) -> float:
    client.expose()
    client.squares.add(client.mean_gradient(torch.from_numpy(batch).to(client.job.inputs.device)))
    [loss] = client.epochs([[batch]])
    return loss


def refuse_diverged(loss: float, epoch: int, client: int, round: int, lr: float) -> None:
    """Raise if an epoch's loss is not finite."""
    if not math.isfinite(loss):
        raise DivergenceError(
            f"client {client} diverged in round {round}, epoch {epoch}: its loss is {loss} (lower local.lr, now {lr:g})"
        )


def diverged(name: str, client: int, round: int, lr: float) -> DivergenceError:
    """What to raise if a client's weights are not finite at the end."""
    return DivergenceError(
        f"client {client} diverged in round {round}: {name} is not finite (lower local.lr, now {lr:g})"
    )


def outcome(client: Client, loss: float) -> Outcome:
    """What the client sends back, and what it keeps."""
    job, work = client.job, client.job.work
    if work.keep or work.report:
        client.expose()
    masks = {name: mask.cpu() for name, mask in client.masks.items()}
    held = job.broadcast.masks
    changed = any(name not in held or not _same(mask, held[name]) for name, mask in masks.items())
    active = client.final(None if changed else job.positions)
    if not _finite(active.values()):
        name = next(name for name, value in active.items() if not torch.isfinite(value).all())
        raise diverged(name, job.client, job.broadcast.round, work.local.lr)
    update = Update(
        client=job.client,
        round=job.broadcast.round,
        weight=work.local.weight(len(job.labels)),
        params={name: value for name, value in active.items() if work.train and name not in work.keep},
        buffers=client.buffers() if work.train else {},
        masks=masks if changed else None,
        extra=make_reports(client),
    )
    kept = {name: client.params[name].detach().cpu().clone() for name in sorted(work.keep)} | (
        kept_masks(masks) if work.ticket is not None else {}
    )
    return Outcome(update, replace(job.state, tensors={**job.state.tensors, **kept}), loss)


def _finite(values: Collection[Tensor]) -> bool:
    # Where the sum of squares is finite all of them are; the other way round it may have been too large.
    squares = [float(flat @ flat) for flat in (value.reshape(-1) for value in values)]
    return math.isfinite(sum(squares)) or all(bool(torch.isfinite(value).all()) for value in values)


def _same(mask: Tensor, held: Tensor) -> bool:
    return mask is held or torch.equal(mask, held)
