"""What the wire makes of stacked clients' values: rounding, where a codec rounds, without writing bytes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from feddst.protocol import generator
from feddst.wire import ValueCodec
from feddst.wire.codecs import codec_named

if TYPE_CHECKING:
    from feddst.engines.stacked.tally import Group, Share


def carried(share: "Share") -> tuple[Tensor, dict[str, Tensor]]:
    """The weights and the reports of a cohort's members as they arrive, [K, width] each."""
    trained, codec = share.trained, codec_named(share.cohort.wire.values, "wire.values")
    theta = share.of(trained.stage.theta)
    reports = {kind: share.of(values) for kind, values in trained.reports.items()}
    if codec.elementwise:
        theta, *others = codec.received([theta, *reports.values()], [])
        reports = dict(zip(reports, others, strict=True))
    else:
        for group in share.groups:
            _round(share, codec, group.of(theta), {kind: group.of(values) for kind, values in reports.items()}, group)
    return theta, reports


def correct(share: "Share", theta: Tensor) -> None:
    """Make weights that arrive, [K, width], changes of the server's own, where the broadcast had them rounded."""
    if share.cohort.correction is not None:
        for name, added in share.cohort.correction.items():
            held = share.flat.view(share.of(share.trained.stage.masks), name) if name in share.sparse else 1
            share.flat.view(theta, name).add_(added * held)


def _round(share: "Share", codec: ValueCodec, theta: Tensor, reports: Mapping[str, Tensor], group: "Group") -> None:
    """Put what arrives into `theta` and `reports`, [K, width] each, of clients with the same masks."""
    sent, flat, layout = share.cohort.reference.broadcast, share.flat, share.layout
    positions = share.positions(group)
    tensors: list[Tensor] = []
    for field in layout.coded:
        values = flat.view(theta if field.group == "params" else reports[field.group], field.name).flatten(1)
        if field.group == "params":
            values = values - sent.params[field.name].reshape(-1) if codec.relative else values
            values = values[:, positions[field.name]] if field.name in positions else values
        tensors.append(values)
    seats = [share.seats[place] for place in group.places]
    draws = [generator(seat.seed, "update rounding", *seat.draw[1:]) for seat in seats]
    for field, values in zip(layout.coded, codec.received(tensors, draws), strict=True):
        whole = flat.view(theta if field.group == "params" else reports[field.group], field.name)
        if field.group == "params":
            before = sent.params[field.name].reshape(-1)
            if field.name in positions:
                at = positions[field.name]
                values = values + before[at] if codec.relative else values
                values = values.new_zeros(len(values), before.numel()).index_copy_(1, at, values)
            elif codec.relative:
                values = values + before
        whole.copy_(values.reshape(whole.shape))
