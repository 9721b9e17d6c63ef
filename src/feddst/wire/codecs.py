"""Every value codec by name and by its code in the header."""

from feddst.errors import OptionError, WireError
from feddst.options import hint, one_of
from feddst.wire.largest import Largest, Largest8, Largest16, Largest32
from feddst.wire.quantise import Quantised2, Quantised4, Quantised8
from feddst.wire.sign import Sign
from feddst.wire.values import BFloat16, Float16, Float32, ValueCodec

CODECS: dict[str, ValueCodec] = {
    codec.name: codec
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
}
"""Every value codec by the name a user types."""

OTHERS = range(128, 256)
"""The codes of codecs that come from elsewhere: those below are this package's, now and later."""


def register(codec: ValueCodec) -> None:
    """Make a codec of your own known under its name and code; both ends must do so."""
    if not isinstance(codec, ValueCodec):
        raise TypeError(f"a value codec must be an instance of a class that implements ValueCodec, got {codec!r}")
    for other in CODECS.values():
        if codec.name == other.name or codec.code == other.code:
            raise ValueError(f"a value codec named {other.name} with code {other.code} is registered already")
    if codec.code not in OTHERS:
        raise ValueError(f"the code of a value codec must be in [{OTHERS[0]}, {OTHERS[-1]}], got {codec.code}")
    CODECS[codec.name] = codec


def codec_named(name: str, option: str) -> ValueCodec:
    """The codec that an option names."""
    if name not in CODECS:
        raise OptionError(f"{option} must be {one_of(CODECS)}, got {name!r}{hint(name, CODECS)}")
    return CODECS[name]


def general_codecs() -> dict[str, ValueCodec]:
    """The codecs that carry any numbers, by name: all but the one for votes."""
    return {name: codec for name, codec in CODECS.items() if not isinstance(codec, Sign)}


def broadcast_codecs() -> dict[str, ValueCodec]:
    """Those among them that carry weights as well as changes: a model must not arrive as its largest weights alone."""
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
