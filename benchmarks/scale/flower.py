"""What Flower itself does to a message on the server, beside carrying it: it takes it apart into objects, and back.

The grid in this process hands messages over as they are, so this comes on top. What is used here is not Flower's public
interface.
"""

from dataclasses import dataclass

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from benchmarks.scale.core_time import core_time


@dataclass(frozen=True)
class FlowerCosts:
    """`objects` that an answer is made of, each of which is fetched by a request of its own; `pack` and `unpack` are
    the seconds of a core for a message and for an answer."""

    objects: int
    pack: float
    unpack: float


def flower_costs(letter: Message, answer: Message) -> FlowerCosts:
    """The costs of a message and of the answer to it."""
    name, parts = _objects(answer)
    return FlowerCosts(
        len(parts),
        core_time(lambda: _objects(letter)),
        core_time(lambda: inflate_object_from_contents(name, dict(parts))),
    )


def _objects(message: Message) -> tuple[str, dict[str, bytes]]:
    with no_object_id_recompute():
        return message.object_id, {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
