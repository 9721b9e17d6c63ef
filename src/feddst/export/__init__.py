"""Trained models as files for others: safetensors, PyTorch, ONNX and sparse, each with a card; and back."""

from feddst.export.load import load
from feddst.export.write import Exported, Format, Values, export

__all__ = ["Exported", "Format", "Values", "export", "load"]
