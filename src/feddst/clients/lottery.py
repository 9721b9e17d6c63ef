"""LotteryFL's clients: each finds its own sparse network before it trains."""

import torch
from torch import Tensor, nn

from feddst.clients.task import Job
from feddst.core import Masks, Tensors, Ticket, count_active, generator, masked
from feddst.methods.lotteryfl import own_masks
from feddst.models import load
from feddst.sparsity import drop_smallest


def take_ticket(module: nn.Module, job: Job, ticket: Ticket) -> tuple[Tensor, dict[str, Tensor], Tensors]:
    """Which images are trained on, as int64 indices, the client's masks, and the weights it begins with."""
    shapes = {name: job.broadcast.params[name].shape for name in ticket.budgets}
    masks = own_masks(job.state, shapes, next(iter(job.broadcast.params.values())).device)
    weights: Tensors = masked(job.broadcast.params, masks)
    trained, held_out = _divide(job, ticket.held_out)
    surplus = _surplus(masks, ticket)
    if any(surplus.values()):
        load(module, weights, job.broadcast.buffers)
        if _accuracy(module, job, held_out) > ticket.threshold:
            masks = {name: drop_smallest(weights[name][None], masks[name][None], n)[0] for name, n in surplus.items()}
            weights = masked(job.initial, masks)
    return trained, masks, weights


def held_out_images(count: int, share: float) -> int:
    """How many of a client's images are held out: at least one, but never all."""
    return min(max(1, round(share * count)), count - 1)


def _divide(job: Job, share: float) -> tuple[Tensor, Tensor]:
    """The images a client trains on and those it holds out, the same in every round."""
    count = len(job.labels)
    order = torch.from_numpy(generator(job.seed, "held out", client=job.client).permutation(count))
    out = held_out_images(count, share)
    return order[out:].sort().values.to(job.inputs.device), order[:out].to(job.inputs.device)


def _surplus(masks: Masks, ticket: Ticket) -> dict[str, int]:
    """How many weights each layer may drop now: the share `prune` of its active ones, but at least one, if it can."""
    active = count_active(masks)
    return {name: min(max(1, round(ticket.prune * n)), n - ticket.budgets[name]) for name, n in active.items()}


def _accuracy(module: nn.Module, job: Job, images: Tensor) -> float:
    """The share of these images that the module gets right; 0 if there are none."""
    if not len(images):
        return 0.0
    module.eval()
    with torch.no_grad():
        right = [module(job.inputs[chunk]).argmax(dim=1) == job.labels[chunk] for chunk in torch.split(images, 256)]
    return float(torch.cat(right).double().mean())
