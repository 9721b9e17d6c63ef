"""Every value codec by name and by its code in the header."""

from typing import Any

from feddst.core import Registry
from feddst.errors import WireError
from feddst.wire.largest import Largest, Largest8, Largest16, Largest32
from feddst.wire.quantise import Quantised2, Quantised4, Quantised8
from feddst.wire.sign import Sign
from feddst.wire.values import BFloat16, Float16, Float32, ValueCodec

OTHERS = range(128, 256)
"""The codes of other packages' codecs: those below are this package's, now and later."""


class Codecs(Registry[ValueCodec]):
    """Value codecs; their codes are unique too, and tell whose they are."""

    def admit(self, item: Any) -> None:
        super().admit(item)
        for other in self.values():
            if item.name == other.name or item.code == other.code:
                raise ValueError(f"a value codec named {other.name} with code {other.code} is registered already")
        if item.code not in OTHERS:
            raise ValueError(f"the code of a value codec must be in [{OTHERS[0]}, {OTHERS[-1]}], got {item.code}")


CODECS = Codecs("value codec", ValueCodec, travels=True)
"""Every value codec by the name a user types."""
ValueCodec.registry = CODECS
CODECS.update(
    (codec.name, codec)
    for codec in (
        Float32(),
        BFloat16(),
        Float16(),
        Quantised8(),
        Quantised4(),
        Quantised2(),
        Largest8(),
        Largest16(),
        Largest32(),
        Sign(),
    )
)


def codec_named(name: str, option: str) -> ValueCodec:
    """The codec that an option names."""
    return CODECS.named(name, option)


def general_codecs() -> dict[str, ValueCodec]:
    """The codecs that carry any numbers, by name: all but the one for votes."""
    return {name: codec for name, codec in CODECS.items() if not isinstance(codec, Sign)}


def broadcast_codecs() -> dict[str, ValueCodec]:
    """The general codecs that carry weights as well as changes: a model must not arrive as its largest weights."""
    return {name: codec for name, codec in general_codecs().items() if not isinstance(codec, Largest)}


def nominal_bits(name: str) -> float:
    """Bits a value by the codec of this name, in a large tensor."""
    many = 2**16
    return 8 * CODECS[name].size([many]) / many


def codec_coded(code: int) -> ValueCodec:
    """The codec that a header names."""
    for codec in CODECS.values():
        if codec.code == code:
            return codec
    raise WireError(f"the header names value codec {code}, which is not known here")
