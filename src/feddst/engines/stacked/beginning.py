"""What clients begin with: the broadcast, what they keep to themselves, and lottery tickets."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from feddst.clients.client import beginning
from feddst.clients.task import Job
from feddst.core import Masks
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.model_stack import Stage
from feddst.engines.stacked.slots import Images, Seat


class MaskRows:
    """Masks as rows of a stage, uint8 [width], worked out once for as long as the same are sent again."""

    def __init__(self, flat: Flat, module: nn.Module, device: torch.device) -> None:
        self.frozen = {name for name, value in module.named_parameters() if not value.requires_grad}
        self._flat = flat
        self._device = device
        self._known: dict[int, tuple[Masks, Tensor]] = {}

    def of(self, sent: Sequence[Masks]) -> Tensor:
        """A row for each; others than these are forgotten."""
        self._known = {id(masks): self._known.get(id(masks)) or (masks, self._made(masks)) for masks in sent}
        return torch.stack([self._known[id(masks)][1] for masks in sent])

    def _made(self, masks: Masks) -> Tensor:
        row = torch.zeros(self._flat.width, dtype=torch.uint8, device=self._device)
        self.fill(row, masks)
        return row

    def fill(self, row: Tensor, masks: Masks) -> None:
        """Write 1 where a weight may change, else 0."""
        for name in self._flat.shapes:
            view = self._flat.view(row[None], name)[0]
            if name in self.frozen:
                view.zero_()
            elif name in masks:
                view.copy_(masks[name])
            else:
                view.fill_(1)


def begin(
    seats: Sequence[Seat], stage: Stage, flat: Flat, module: nn.Module, images: Images, mask_rows: MaskRows
) -> list[Seat]:
    """Bring what the seats begin with onto the stage; returns them with the images that they train on."""
    sent = {id(seat.broadcast): seat.broadcast for seat in seats}
    number = {broadcast: i for i, broadcast in enumerate(sent)}
    device = stage.theta.device
    rows = torch.tensor([number[id(seat.broadcast)] for seat in seats], device=device)
    theta = torch.zeros(len(sent), flat.width, device=device)
    for name in seats[0].broadcast.params:
        flat.view(theta, name).copy_(torch.stack([broadcast.params[name] for broadcast in sent.values()]))
    masks = mask_rows.of([broadcast.masks for broadcast in sent.values()])
    torch.index_select(theta, 0, rows, out=stage.theta)
    torch.index_select(masks, 0, rows, out=stage.masks)
    stage.velocity.zero_()
    stage.buffers = {
        name: torch.stack([broadcast.buffers[name] for broadcast in sent.values()])[rows]
        for name in seats[0].broadcast.buffers
    }
    begun = [_own(seat, row, stage, flat, module, images, mask_rows) for row, seat in enumerate(seats)]
    stage.received.copy_(stage.theta)
    return begun


def _own(
    seat: Seat, row: int, stage: Stage, flat: Flat, module: nn.Module, images: Images, mask_rows: MaskRows
) -> Seat:
    """What a client begins with that is not the broadcast's."""
    plan = seat.plan
    if plan.keep:
        kept = {name: seat.state.tensors.get(name, seat.initial[name]) for name in sorted(plan.keep)}
        flat.fill(stage.theta[row], kept)
    if not plan.own_layers:
        return seat
    at = torch.from_numpy(seat.images).to(stage.theta.device)
    job = Job(
        seat.client,
        seat.seed,
        seat.broadcast,
        plan,
        images.inputs[at],
        images.labels[at],
        seat.state,
        seat.initial,
    )
    begun = beginning(module, job)
    flat.fill(stage.theta[row], begun.weights)
    mask_rows.fill(stage.masks[row], begun.masks)
    return seat if begun.images is None else replace(seat, images=seat.images[begun.images.cpu().numpy()])
