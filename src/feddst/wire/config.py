"""How models are sent."""

from dataclasses import dataclass
from typing import Literal

from feddst.errors import OptionError
from feddst.options import one_of, option
from feddst.wire.codecs import CODECS, broadcast_codecs, codec_named
from feddst.wire.largest import Largest
from feddst.wire.masks import MaskStyle


@dataclass(frozen=True)
class WireConfig:
    """What is sent as what."""

    values: str = option(
        "float32",
        "how an update's values travel: float32, bfloat16, float16, or the change: in 8, 4 or 2 bits, q8, q4, q2, "
        "or the sign of one in 8, 16 or 32, the largest: top8, top16, top32; sign is for methods that send votes",
        among=CODECS,
    )
    download: str = option(
        "float32",
        "how the broadcast's values travel: not as sign, top8, top16 or top32, which are for updates alone",
        among=CODECS,
    )
    mask: MaskStyle = option(
        "difference",
        "how a mask travels that the other end does not have: as the difference to one it has, or whole",
    )
    packing: Literal["plain", "deflate"] = option(
        "plain", "whether values are entropy-coded on top (Huffman's code), both ways"
    )
    remember: int = option(
        8, "how many masks the server remembers, to send clients that hold one of them the difference", at_least=0
    )
    max_change: float = option(
        10.0,
        "an update is refused if its weights are further from those that were sent than this many times the norm of "
        "all that were (at least 1); 0: however far they are",
        at_least=0,
    )
    feedback: bool = option(False, "a client keeps what its codec left out of an update, and adds it to its next one")

    def check(self) -> None:
        """Raise `OptionError` if a codec is unknown, not for this direction, or has nothing for feedback to keep."""
        codec = codec_named(self.values, "wire.values")
        if isinstance(codec_named(self.download, "wire.download"), Largest):
            allowed = one_of(broadcast_codecs())
            raise OptionError(f"wire.download must be {allowed}, got {self.download!r}, which carries changes alone")
        if self.feedback and not codec.relative:
            changes = [name for name, each in CODECS.items() if each.relative]
            raise OptionError(f"with wire.feedback, wire.values must be {one_of(changes)}, got {self.values!r}")
