"""Code that loads an exported model and runs it on a blank input, to be copied from its card."""

import json

from feddst.export.inputs import Inputs
from feddst.export.origin import Origin


def snippet(file: str, format: str, origin: Origin) -> str:
    """Lines of Python that run beside the file, on a blank input where the shape of one is known."""
    if format == "onnx":
        return _for_onnxruntime(file, origin.inputs)
    given = "" if origin.network is not None else ", model=Net"
    lines = ["import feddst", ""]
    if given:
        lines.append("# Net: the module that was trained, or a function that makes one")
    lines.append(f"model = feddst.load({json.dumps(file)}{given})  # an nn.Module in evaluation mode")
    if origin.inputs is not None and not origin.inputs.several:
        lines = ["import torch", "", *lines, "", *_torch_inputs(origin.inputs)]
        lines.append(f"{origin.inputs.answer} = model({origin.inputs.name})")
    return "\n".join(lines) + "\n"


def _torch_inputs(inputs: Inputs) -> list[str]:
    shape = ", ".join(map(str, (1, *inputs.shape)))
    lines = [f"{inputs.name} = torch.zeros({shape}, dtype=torch.{inputs.dtype})  # your inputs"]
    if inputs.pixels:
        lines = [
            f"pixels = torch.zeros({shape}, dtype=torch.uint8)  # your images",
            f"{inputs.name} = pixels.float() / 255",
        ]
    if inputs.mean:
        view = _channels(inputs)
        lines.append(f"mean = torch.tensor({list(inputs.mean)}).view({view})")
        lines.append(f"std = torch.tensor({list(inputs.std)}).view({view})")
        lines.append(f"{inputs.name} = ({inputs.name} - mean) / std")
    return lines


def _for_onnxruntime(file: str, inputs: Inputs | None) -> str:
    assert inputs is not None
    shape = ", ".join(map(str, (1, *inputs.shape)))
    lines = [
        "import numpy as np",
        "import onnxruntime",
        "",
        f"session = onnxruntime.InferenceSession({json.dumps(file)})",
        "",
    ]
    if inputs.pixels:
        lines.append(f"pixels = np.zeros(({shape}), dtype=np.uint8)  # your images")
        lines.append(f"{inputs.name} = pixels.astype(np.float32) / 255")
    else:
        lines.append(f"{inputs.name} = np.zeros(({shape}), dtype=np.{inputs.dtype})  # your inputs")
    if inputs.mean:
        view = _channels(inputs)
        lines.append(f"mean = np.array({list(inputs.mean)}, dtype=np.float32).reshape({view})")
        lines.append(f"std = np.array({list(inputs.std)}, dtype=np.float32).reshape({view})")
        lines.append(f"{inputs.name} = ({inputs.name} - mean) / std")
    lines.append(f'[{inputs.answer}] = session.run(None, {{"{inputs.name}": {inputs.name}}})')
    return "\n".join(lines) + "\n"


def _channels(inputs: Inputs) -> str:
    """The shape in which one number a channel meets the images."""
    return ", ".join(["-1", *["1"] * (len(inputs.shape) - 1)])
