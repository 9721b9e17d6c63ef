"""The paper's networks, and support for any `nn.Module`."""

from feddst.models.build import network, network_name
from feddst.models.config import ModelConfig
from feddst.models.federable import (
    ModuleSource,
    check_fit,
    dense_reasons,
    initial_model,
    load,
    make_module,
    outputs_for,
    persistent_buffers,
    prunable_layers,
)
from feddst.models.flops import forward_flops, multiply_adds, training_flops

__all__ = [
    "ModelConfig",
    "ModuleSource",
    "check_fit",
    "dense_reasons",
    "forward_flops",
    "initial_model",
    "load",
    "make_module",
    "multiply_adds",
    "network",
    "network_name",
    "outputs_for",
    "persistent_buffers",
    "prunable_layers",
    "training_flops",
]
