"""The paper's networks, and what makes any `nn.Module` federable."""

from feddst.models.build import network
from feddst.models.config import ModelConfig
from feddst.models.federable import (
    ModuleSource,
    check_fit,
    initial_model,
    load,
    make_module,
    persistent_buffers,
    prunable_layers,
)
from feddst.models.flops import forward_flops, multiply_adds, training_flops

__all__ = [
    "ModelConfig",
    "ModuleSource",
    "check_fit",
    "forward_flops",
    "initial_model",
    "load",
    "make_module",
    "multiply_adds",
    "network",
    "persistent_buffers",
    "prunable_layers",
    "training_flops",
]
