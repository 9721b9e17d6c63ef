"""A sparse model as bytes, and back: the format is in docs/wire.md."""

from feddst.wire.broadcast import BroadcastDecoder, BroadcastEncoder, decode_broadcast, decode_reference
from feddst.wire.codecs import CODECS, broadcast_codecs, general_codecs, nominal_bits
from feddst.wire.config import WireConfig
from feddst.wire.history import MaskHistory
from feddst.wire.layout import Field, Layout, model_layout, update_layout
from feddst.wire.payload import check_size, mask_bytes
from feddst.wire.reference import MaskFacts, Reference
from feddst.wire.task import ClientResult, ClientTask, Message
from feddst.wire.update import LARGEST_WEIGHT, decode_update, encode_update, largest_update
from feddst.wire.values import ValueCodec

__all__ = [
    "CODECS",
    "LARGEST_WEIGHT",
    "BroadcastDecoder",
    "BroadcastEncoder",
    "ClientResult",
    "ClientTask",
    "Field",
    "Layout",
    "MaskFacts",
    "MaskHistory",
    "Message",
    "Reference",
    "ValueCodec",
    "WireConfig",
    "broadcast_codecs",
    "check_size",
    "decode_broadcast",
    "decode_reference",
    "decode_update",
    "encode_update",
    "general_codecs",
    "largest_update",
    "mask_bytes",
    "model_layout",
    "nominal_bits",
    "update_layout",
]
