"""ONNX: the model as a graph that runs without Python, for any number of inputs at a time.

The graph takes what the module takes: inputs that are scaled and normalised already. So all formats agree on what an
input is, and what was tested of one holds for the other. Which mean and std are meant is in the graph's metadata.
"""

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from feddst.errors import ModelError, OptionError
from feddst.export.dense import KEY
from feddst.export.inputs import Inputs
from feddst.export.networks import example
from feddst.models.dry import dry_forward

BATCH = "batch"
OPSET = 18
"""The oldest that PyTorch's exporter writes by itself: more programs read it than a newer one."""

TOLERANCE = 1e-3
"""How far scores may be from the module's, relative to the largest of them, before the graph counts as wrong."""

_LARGEST = 2**31 - 1
_TRIED = 3


def refuse_without_onnx() -> None:
    """Raise unless what the export needs is installed."""
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise OptionError(f"format onnx needs the package {package}: pip install 'feddst[onnx]'")


def onnx_bytes(module: nn.Module, inputs: Inputs, description: str) -> tuple[bytes, str]:
    """The graph of a module in evaluation mode, and in words how it was checked."""
    with _quiet():
        proto = _translated(module, inputs)
        entry = proto.metadata_props.add()
        entry.key, entry.value = KEY, description
        try:
            content: bytes = proto.SerializeToString()
        except ValueError:
            raise ModelError("the model cannot be written as one ONNX file: it takes more than 2 GiB") from None
        if len(content) > _LARGEST:
            raise ModelError("the model cannot be written as one ONNX file: it takes more than 2 GiB")
        return content, _checked(proto, content, module, inputs)


def _translated(module: nn.Module, inputs: Inputs) -> Any:
    """The module as an ONNX model, for batches of any size."""
    two = example(inputs, 2)
    try:
        program = torch.onnx.export(
            module,
            (two,),
            input_names=[inputs.name],
            output_names=[inputs.answer],
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim(BATCH)},),
            verbose=False,
        )
    except Exception as error:  # any module may raise any exception
        raise ModelError(f"the model cannot be exported to ONNX: {_reason(error)}") from None
    if program is None:
        raise ModelError("the model cannot be exported to ONNX: PyTorch gave no graph")
    proto = program.model_proto
    if not proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise ModelError(
            f"the model cannot be exported to ONNX: it takes no other number of {inputs.name} than {len(two)}"
        )
    return proto


def _checked(proto: Any, content: bytes, module: nn.Module, inputs: Inputs) -> str:
    """Check the graph's form, and where onnxruntime is installed its scores too."""
    import onnx

    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"the ONNX graph is not valid: {_reason(error)}") from None
    if find_spec("onnxruntime") is None:
        return "its form was checked; its scores were not, because onnxruntime is not installed"
    difference = max(_difference(content, module, _tried(inputs, number)) for number in (1, _TRIED))
    if difference > TOLERANCE:
        raise ModelError(f"the ONNX graph is wrong: its scores are {difference:.2g} off, relative to the largest")
    return f"its scores were compared in onnxruntime: at most {difference:.1g} off, relative to the largest"


def _difference(content: bytes, module: nn.Module, images: Tensor) -> float:
    """The largest difference of scores, relative to the largest score."""
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: images.numpy()})[0])
    except Exception as error:  # onnxruntime's own exceptions have no common base
        raise ModelError(f"the ONNX graph does not run: {_reason(error)}") from None
    expected = dry_forward(module, images)
    if not expected.isfinite().all():
        raise ModelError("the ONNX graph cannot be checked: the model's own scores are not all finite numbers")
    if found.shape != expected.shape:
        raise ModelError(f"the ONNX graph is wrong: it gives {list(found.shape)}, not {list(expected.shape)}")
    difference = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    return math.inf if math.isnan(difference) else difference


def _tried(inputs: Inputs, images: int) -> Tensor:
    """Inputs to compare scores on: noise, or, where inputs are tokens, zeros."""
    blank = example(inputs, images)
    draws = torch.Generator().manual_seed(0)
    return torch.randn(blank.shape, generator=draws) if blank.is_floating_point() else blank


def _reason(error: BaseException) -> str:
    """The first line of an error's first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter and its libraries: their advice is for their own developers.

    Nothing is lost by it: errors are raised, and the graph is checked afterwards.
    """
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch.fx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
