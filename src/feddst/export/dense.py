"""Dense files: every value, zeros included, in a safetensors file or as PyTorch saves a state dict."""

import io
import json
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from feddst.core import Tensors
from feddst.errors import CheckpointError
from feddst.runtime.tensorfile import pack

KEY = "feddst"
"""Under this name a file's metadata hold its description."""

ZIP = b"PK\x03\x04"
"""How a file begins that `torch.save` wrote."""


def safetensors_bytes(tensors: Tensors, description: str) -> bytes:
    """A safetensors file; its metadata say that PyTorch wrote it, as model hubs want to know."""
    return pack(tensors, {"format": "pt", KEY: description})


def torch_bytes(tensors: Tensors, description: str) -> bytes:
    """A state dict that `torch.load(…, weights_only=True)` reads; the description is in its `_metadata`."""
    state: Any = OrderedDict((name, value.detach().cpu().contiguous().clone()) for name, value in tensors.items())
    state._metadata = OrderedDict({KEY: {"description": description}})
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def read_torch(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a state dict, and its description, empty where there is none. No code in it is run."""
    try:
        _refuse_packed(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes PyTorch raise any exception
        raise CheckpointError(f"it cannot be read as a state dict: {_first_line(error)}") from None
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and _is_plain(value) for name, value in state.items()
    ):
        raise CheckpointError("it is not a state dict: tensors of real numbers by name")
    return dict(state), _described(getattr(state, "_metadata", None))


def _refuse_packed(path: Path) -> None:
    """Raise if a file's parts are larger than itself: `torch.save` packs nothing, and a few bytes could fill memory."""
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    if unpacked > size:
        raise CheckpointError(f"{size:,} bytes would unpack to {unpacked:,}")


def _is_plain(value: Any) -> bool:
    """Whether a value is a dense tensor of real numbers, with its data."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return not (value.is_meta or value.is_quantized or value.is_complex())


def _described(metadata: Any) -> str:
    found = metadata.get(KEY) if isinstance(metadata, dict) else None
    text = found.get("description") if isinstance(found, dict) else None
    return text if isinstance(text, str) else ""


def _first_line(error: Exception) -> str:
    return json.dumps(str(error).partition("\n")[0][:200], ensure_ascii=False).strip('"')
