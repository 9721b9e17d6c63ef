"""`feddst.load`: a trained model back from a run's directory or an exported file."""

from pathlib import Path

from torch import Tensor, nn

from feddst.errors import CheckpointError, ModelError
from feddst.export.dense import KEY, ZIP, read_torch
from feddst.export.description import read_network
from feddst.export.networks import filled, own_module, skeleton
from feddst.export.origin import origin_of
from feddst.export.sparse import is_sparse, read_sparse
from feddst.export.trained import trained_in
from feddst.models import ModuleSource
from feddst.runtime.tensorfile import unpack


def load(path: str | Path, model: ModuleSource | None = None) -> nn.Module:
    """The trained model of a run's directory or of a safetensors, torch or sparse file, in evaluation mode.

    A built-in network is made anew. Give one of your own as `model`, a module or a function that makes one; it is
    copied, not changed. The model takes inputs that are scaled and normalised as they were in training: the card beside
    a file says how.
    """
    path = Path(path)
    if path.is_dir():
        return _from_run(path, model)
    try:
        tensors, description = _read(path)
        if model is not None:
            return filled(own_module(model), tensors)
        return _built_in(tensors, description)
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be loaded: {error}") from None
    except ModelError as error:
        raise ModelError(f"{path} cannot be loaded: {error}") from None


def _from_run(path: Path, model: ModuleSource | None) -> nn.Module:
    module = origin_of(trained_in(path), model, None).module
    if module is None:
        raise ModelError(f"{path} was begun in Python with a model or data of its own: give the model as `model`")
    return module


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file, and its description, empty if it has none."""
    if path.suffix == ".onnx":
        raise CheckpointError("it is a graph for programs such as onnxruntime, and no module")
    try:
        with path.open("rb") as file:
            beginning = file.read(len(ZIP))
            if beginning != ZIP:
                tensors, metadata = unpack(beginning + file.read())
    except OSError as error:
        raise CheckpointError(error.strerror or str(error)) from None
    if beginning == ZIP:
        return read_torch(path)
    if is_sparse(metadata):
        return read_sparse(tensors, metadata)
    return tensors, metadata.get(KEY, "")


def _built_in(tensors: dict[str, Tensor], description: str) -> nn.Module:
    known = read_network(description) if description else None
    if known is None:
        raise ModelError("it does not say what network it is for: give the model as `model`")
    module = skeleton(*known)
    if module is None:
        raise CheckpointError("its network does not take inputs of the shape that it names")
    return filled(module, tensors)
