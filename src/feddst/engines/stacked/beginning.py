"""What clients begin with: the broadcast, what they keep to themselves, and lottery tickets."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from feddst.engines.base import Job
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.seats import Images, Seat
from feddst.engines.stacked.stage import Stage
from feddst.engines.ticket import take_ticket
from feddst.protocol import Masks


def begin(seats: Sequence[Seat], stage: Stage, flat: Flat, module: nn.Module, images: Images) -> list[Seat]:
    """Bring what the seats begin with onto the stage; returns them with the images that they train on."""
    frozen = {name for name, value in module.named_parameters() if not value.requires_grad}
    sent = {id(seat.broadcast): seat.broadcast for seat in seats}
    number = {broadcast: i for i, broadcast in enumerate(sent)}
    device = stage.theta.device
    rows = torch.tensor([number[id(seat.broadcast)] for seat in seats], device=device)
    theta = torch.zeros(len(sent), flat.width, device=device)
    masks = torch.zeros(len(sent), flat.width, dtype=torch.uint8, device=device)
    for i, broadcast in enumerate(sent.values()):
        flat.fill(theta[i], broadcast.params)
        _fill_masks(masks[i], flat, broadcast.masks, frozen)
    torch.index_select(theta, 0, rows, out=stage.theta)
    torch.index_select(masks, 0, rows, out=stage.masks)
    stage.velocity.zero_()
    stage.buffers = {
        name: torch.stack([broadcast.buffers[name] for broadcast in sent.values()])[rows]
        for name in seats[0].broadcast.buffers
    }
    begun = [_own(seat, row, stage, flat, module, images, frozen) for row, seat in enumerate(seats)]
    stage.received.copy_(stage.theta)
    return begun


def _own(seat: Seat, row: int, stage: Stage, flat: Flat, module: nn.Module, images: Images, frozen: set[str]) -> Seat:
    """What a client begins with that is not the broadcast's."""
    work = seat.work
    kept = {name: seat.state.tensors.get(name, seat.initial[name]) for name in work.keep}
    flat.fill(stage.theta[row], kept)
    if work.ticket is None:
        return seat
    at = torch.from_numpy(seat.images).to(stage.theta.device)
    job = Job(
        seat.client,
        seat.seed,
        seat.broadcast,
        work,
        images.inputs[at],
        images.labels[at],
        seat.state,
        seat.initial,
    )
    trained, masks, weights = take_ticket(module, job, work.ticket)
    flat.fill(stage.theta[row], weights)
    _fill_masks(stage.masks[row], flat, masks, frozen)
    return replace(seat, images=seat.images[trained.cpu().numpy()])


def _fill_masks(row: Tensor, flat: Flat, masks: Masks, frozen: set[str]) -> None:
    """1 where a weight may change."""
    for name in flat.shapes:
        view = flat.view(row[None], name)[0]
        if name in frozen:
            view.zero_()
        elif name in masks:
            view.copy_(masks[name])
        else:
            view.fill_(1)
