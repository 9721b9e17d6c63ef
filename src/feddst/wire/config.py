"""How models travel."""

from dataclasses import dataclass
from typing import Literal

from feddst.options import option
from feddst.wire.codecs import codec_named
from feddst.wire.masks import MaskStyle


@dataclass(frozen=True)
class WireConfig:
    """What is sent as what."""

    values: str = option(
        "float32",
        "how an update's values travel: float32, bfloat16, float16, or the change in 8, 4 or 2 bits: q8, q4, q2",
    )
    download: str = option("float32", "how the broadcast's values travel, by the same names")
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

    def check(self) -> None:
        """Raise `OptionError` if a codec is not known."""
        codec_named(self.values, "wire.values")
        codec_named(self.download, "wire.download")
