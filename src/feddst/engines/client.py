"""One client's round, as plainly as it can be written. Every faster engine is tested against this."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from feddst.engines.base import Job, Outcome
from feddst.engines.readjust import readjust
from feddst.engines.reports import make_reports
from feddst.engines.ticket import take_ticket
from feddst.errors import TrainingError
from feddst.methods.lotteryfl import kept_masks
from feddst.models import load, persistent_buffers
from feddst.protocol import ClientState, Masks, Tensors, Update, minibatches, packed, positions_of
from feddst.protocol.keys import torch_seed


@dataclass
class Client:
    """A client in the middle of its round. `velocity` is SGD's momentum, new each round."""

    module: nn.Module
    job: Job
    params: dict[str, nn.Parameter]
    masks: Masks
    received: Tensors
    velocity: dict[str, Tensor]

    def step(self, batch: Tensor) -> Tensor:
        """One SGD step on the images `batch` (int64 indices); returns the loss before it."""
        work = self.job.work
        loss = F.cross_entropy(self.module(self.job.inputs[batch]), self.job.labels[batch])
        with torch.no_grad():
            for name, g in self._gradients(loss).items():
                theta = self.params[name]
                # Never in place: autograd may hand out the same tensor for two parameters.
                step = torch.add(g, theta, alpha=work.local.l2)
                if work.proximal is not None and work.proximal.gradient == "exact":
                    step.add_(theta - self.received[name], alpha=work.proximal.mu)
                if name in self.masks:
                    step.mul_(self.masks[name])
                theta.sub_(self.velocity[name].mul_(work.local.momentum).add_(step), alpha=work.local.lr)
        return loss.detach()

    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]:
        """The task loss's gradient averaged over `images`, dense, with dropout off and BatchNorm frozen.

        The network's outputs are divided by `temperature`.
        """
        self.module.eval()
        total = {name: torch.zeros_like(value) for name, value in self.params.items()}
        for chunk in torch.split(images, 256):
            outputs = self.module(self.job.inputs[chunk]) / temperature
            loss = F.cross_entropy(outputs, self.job.labels[chunk], reduction="sum")
            for name, g in self._gradients(loss).items():
                total[name] += g / len(images)
        self.module.train()
        return total

    def _gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """The gradient of every parameter that is trained and that the loss depends on."""
        trained = {name: value for name, value in self.params.items() if value.requires_grad}
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        return {name: g for name, g in zip(trained, gradients, strict=True) if g is not None}


def train_client(module: nn.Module, job: Job) -> Outcome:
    """Carry out one job in `module`, whose tensors are overwritten."""
    sent, work, device = job.broadcast, job.work, job.inputs.device
    masks: Masks = sent.masks
    weights: Tensors = {**sent.params, **{name: job.state.tensors.get(name, job.initial[name]) for name in work.keep}}
    if work.ticket is not None:
        job, masks, weights = take_ticket(module, job, work.ticket)
    load(module, weights, sent.buffers)
    module.train()
    params = dict(module.named_parameters())
    client = Client(
        module=module,
        job=job,
        params=params,
        masks={name: mask.to(device) for name, mask in masks.items()},
        received={name: value.detach().clone() for name, value in params.items()},
        velocity={name: torch.zeros_like(value) for name, value in params.items()},
    )
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(torch_seed(job.seed, f"torch {sent.round} {job.client}"))
        loss = _train(client) if work.train else 0.0
    return _outcome(client, loss)


def _train(client: Client) -> float:
    """All epochs, with the readjustment after its own; returns the last epoch's mean loss."""
    job, work = client.job, client.job.work
    epochs = minibatches(len(job.labels), work.local, job.seed, job.broadcast.round, job.client)
    loss = 0.0
    for epoch, batches in enumerate(epochs, 1):
        total = torch.zeros((), device=job.inputs.device)
        for indices in batches:
            batch = torch.from_numpy(indices).to(job.inputs.device)
            total += client.step(batch) * len(batch)
        loss = float(total) / len(job.labels)
        if not torch.isfinite(total):
            raise TrainingError(
                f"client {job.client} diverged in round {job.broadcast.round}, epoch {epoch}: its loss is {loss} "
                f"(lower local.lr, now {work.local.lr:g})"
            )
        # A straggler that stops before its time readjusts after its last epoch.
        if work.readjust is not None and epoch == min(work.readjust.after_epoch, work.local.epochs):
            client.masks = readjust(client, work.readjust, batch)
    return loss


def _outcome(client: Client, loss: float) -> Outcome:
    job, work = client.job, client.job.work
    final = {name: value.detach().cpu().clone() for name, value in client.params.items()}
    for name, value in final.items():
        if not torch.isfinite(value).all():
            raise TrainingError(
                f"client {job.client} diverged in round {job.broadcast.round}: {name} is not finite "
                f"(lower local.lr, now {work.local.lr:g})"
            )
    masks = {name: mask.cpu() for name, mask in client.masks.items()}
    held = job.broadcast.masks
    changed = any(name not in held or not torch.equal(mask, held[name]) for name, mask in masks.items())
    buffers = {name: value.detach().cpu().clone() for name, value in persistent_buffers(client.module)}
    sent = {name: value for name, value in final.items() if work.train and name not in work.keep}
    update = Update(
        client=job.client,
        round=job.broadcast.round,
        weight=work.local.weight(len(job.labels)),
        params=packed(sent, positions_of(masks)),
        buffers=buffers if work.train else {},
        masks=masks if changed else None,
        extra=make_reports(client),
    )
    kept = {name: final[name] for name in work.keep} | (kept_masks(masks) if work.ticket is not None else {})
    return Outcome(update, ClientState({**job.state.tensors, **kept}), loss)
