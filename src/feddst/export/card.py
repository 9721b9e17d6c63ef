"""The card beside an exported model: what it is, what it was trained on, how good it is, and how to load it."""

import html
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from feddst.core import count_kept
from feddst.export.inputs import Inputs
from feddst.export.origin import Origin
from feddst.export.snippets import snippet
from feddst.export.trained import Trained
from feddst.methods import why_idle
from feddst.options import as_words, flatten, updated
from feddst.runtime import Row, RunConfig, toml
from feddst.runtime.config import config_of, method_named
from feddst.runtime.metrics import ACCURACY
from feddst.runtime.wording import counted, forward_pass, percent

_MIB = 2**20
_FORMATS = {
    "safetensors": "a dense safetensors checkpoint",
    "torch": "a dense PyTorch state dict",
    "onnx": "an ONNX graph",
    "sparse": "a sparse file that `feddst.load` reads",
}
_WHICH_DATA = tuple(f"data.{name}" for name in ("dataset", "root", "target", "inputs", "owner", "test", "test_share"))
"""Options that say which data; how they are divided is said by others."""


@dataclass(frozen=True)
class Facts:
    """What a card is made from. `check` says how the file was checked, `values` how a sparse file holds numbers."""

    trained: Trained
    origin: Origin
    file: Path
    format: str
    size: int
    version: str
    values: str = "float32"
    check: str = ""


def card(facts: Facts) -> str:
    """The card, in Markdown, with the front matter that model hubs read."""
    parts = [
        _front_matter(facts),
        _what(facts),
        _scores(facts.trained),
        _loading(facts),
        _inputs(facts.origin.inputs),
        _layers(facts.trained),
        _costs(facts.trained),
        _made_with(facts),
        _terms(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(facts: Facts) -> str:
    inputs = facts.origin.inputs
    tags = ["federated-learning", *(["sparse"] if facts.trained.masks else []), facts.trained.config.method]
    lines = ["---", "library_name: feddst", "tags:", *(f"- {json.dumps(tag)}" for tag in tags)]
    if inputs is not None and inputs.pixels and inputs.classes:
        lines.append("pipeline_tag: image-classification")
    if inputs is not None and not facts.origin.own_data and inputs.data in ("mnist", "cifar10", "cifar100"):
        lines += ["datasets:", f"- {inputs.data}"]
    return "\n".join([*lines, "metrics:", f"- {facts.trained.metric.name}", "---"])


def _what(facts: Facts) -> str:
    trained, config = facts.trained, facts.trained.config
    weights = sum(value.numel() for value in trained.params.values())
    network = f"The network {facts.origin.network.name}" if facts.origin.network else "A network of its maker's own"
    state = "" if trained.finished else " The run had not come to its end: this is its last checkpoint."
    rounded = ""
    if facts.values != "float32":
        figures = "accuracies" if trained.metric == ACCURACY else "figures"
        rounded = (
            f" Its values were rounded to {facts.values} after training; the {figures} below are of the model before."
        )
    sparse = f", {percent(trained.sparsity)} of the weights of its sparse layers pruned" if trained.masks else ", dense"
    paper = method_named(config.method).card.paper
    lines = [
        f"# {facts.file.name}",
        "",
        f"{network}, trained by federated learning with {config.method} ({paper}) "
        f"for {counted(trained.round, 'round')}: {weights:,} weights and biases{sparse}. "
        f"`{facts.file.name}` is {_FORMATS[facts.format]} of {facts.size:,} bytes; "
        f"all values take {trained.dense_bytes:,}.{rounded}{state}",
    ]
    if trained.note:
        lines += ["", f"**{trained.note}**"]
    if facts.check:
        lines += ["", f"ONNX: {facts.check}."]
    return "\n".join(lines)


def _scores(trained: Trained) -> str:
    row, metric = trained.evaluated, trained.metric
    title = "## Accuracy" if metric == ACCURACY else f"## {metric.name}"
    if row is None:
        return f"{title}\n\nIt was not measured in the run."
    of = "the server's model" if trained.client is not None else "the model"
    when = f"after round {row.round}"
    if row.round != trained.round:
        when += f", the last that was evaluated before this model's, {trained.round}"
    tests = "examples held out" if trained.config.data.held_out else "test examples"
    named = (
        (f"mean over clients, each on its own {tests}", row.score),
        ("mean over the worst tenth of the clients", row.score_worst),
        (f"all {tests}", row.score_global),
        (f"clients' own models, on (some of) their own {tests}", row.score_personal),
    )
    rows = [f"| {name} | {metric.text(value, 2)} |" for name, value in named if value is not None]
    less = "" if metric.higher_is_better else " Less is better."
    others = [f"{name} {value:.4g}" for name, value in row.others.items()]
    also = ["", f"Other figures: {', '.join(others)}."] if others else []
    own = "" if trained.client is None else " This client's model alone was not measured."
    heading = [
        title,
        "",
        f"Of {of} {when}, as measured in the run.{less}{own}",
        "",
        f"| | {metric.name} |",
        "|---|---:|",
    ]
    return "\n".join([*heading, *rows, *also])


def _loading(facts: Facts) -> str:
    code = snippet(facts.file.name, facts.format, facts.origin)
    need = "pip install onnxruntime" if facts.format == "onnx" else "pip install feddst"
    return f"## How to load it\n\nAfter `{need}`:\n\n```python\n{code}```"


def _inputs(inputs: Inputs | None) -> str:
    if inputs is None:
        return (
            "## Inputs\n\nThe run was given data in Python that are not described here: inputs must be of the shape, "
            "and scaled and normalised, as they were there."
        )
    shape = ", ".join(map(str, inputs.shape))
    lines = [f"{inputs.dtype} of shape [N, {shape}]."]
    if inputs.pixels:
        lines.append("Images are bytes, 0 to 255, divided by 255" + (";" if inputs.mean else "."))
    if inputs.mean:
        each = "channel" if len(inputs.shape) > 1 else "column"
        lines.append(
            f"{'then, by' if inputs.pixels else 'By'} {each}, minus the mean {_numbers(inputs.mean)}, "
            f"divided by the std {_numbers(inputs.std)}."
        )
        lines.append("The model, in every format, expects this to be done already.")
    if inputs.several:
        lines = [f"Several: {inputs.several}, each with the examples as its first dimension."]
    if inputs.outputs:
        return f"## Inputs\n\n{' '.join(lines)}\n\nFor each input it gives {counted(inputs.scores, 'number')}."
    classes = ", ".join(map(_plain, inputs.classes[:20])) + (", …" if len(inputs.classes) > 20 else "")
    return f"## Inputs\n\n{' '.join(lines)}\n\n{len(inputs.classes)} classes, in the order of the scores: {classes}."


def _layers(trained: Trained) -> str:
    rows = []
    for name, value in trained.params.items():
        kept = count_kept(trained.masks[name]) if name in trained.masks else value.numel()
        share = percent(1 - kept / value.numel()) if name in trained.masks and value.numel() else "dense"
        shape = "×".join(map(str, value.shape)) or "scalar"
        rows.append(f"| {_plain(name)} | {shape} | {value.numel():,} | {kept:,} | {share} |")
    heading = [
        "## Sparsity by layer",
        "",
        "| parameter | shape | values | kept | sparsity |",
        "|---|---|---:|---:|---:|",
    ]
    return "\n".join([*heading, *rows])


def _costs(trained: Trained) -> str:
    if not trained.rows:
        return ""
    row: Row = trained.rows[-1]
    rows = [
        f"| uploaded by all clients | {_sent(row.upload_bytes, row.upload_mask_bytes)} |",
        f"| downloaded by all clients | {_sent(row.download_bytes, row.download_mask_bytes)} |",
        f"| training | {row.flops_sparse:.3g} FLOPs of the sparse network; dense it would be {row.flops_dense:.3g} |",
    ]
    forward = forward_pass(row.forward_flops_sparse, row.forward_flops_dense)
    if forward and trained.client is None:  # not counted for a client's own model
        rows.append(f"| a forward pass of the model | {forward} |")
    heading = [
        "## What it took",
        "",
        f"In {counted(trained.round, 'round')}; bytes as they were sent, FLOPs by count.",
        "",
    ]
    return "\n".join([*heading, "| | |", "|---|---|", *rows])


def _made_with(facts: Facts) -> str:
    trained, origin = facts.trained, facts.origin
    data = f"Data: {_plain(origin.division)}." if origin.division else "Data: given in Python, not described here."
    if not origin.compared:
        data += " That is what the run's config says; the data were not here to compare."
    ours = origin.network is not None and not origin.own_data
    # Where the data lay is private.
    places = {"folder": "DIR", "file": "FILE"}
    hidden = {"data.root": places.get(trained.config.data.dataset, "")}
    config = updated(trained.config, hidden | ({"data.test": "FILE"} if trained.config.data.test else {}))
    made = (
        f"```\n{command(config)}\n```"
        if ours
        else "The run was given a model or data in Python: no command makes it again."
    )
    folded = f"<details><summary>Every option</summary>\n\n```toml\n{_options(config, facts)}\n```\n\n</details>"
    return "\n\n".join([f"## How it was made\n\n{data}", made, f"Exported with `{_export_command(facts)}`.", folded])


def _export_command(facts: Facts) -> str:
    given = {"format": facts.format}
    given |= {"values": facts.values} if facts.values != "float32" else {}
    given |= {"client": str(facts.trained.client)} if facts.trained.client is not None else {}
    return shlex.join(["feddst", "export", "RUN", *as_words(given)])


def _options(config: RunConfig, facts: Facts) -> str:
    """The config as TOML, without the options that its method does not use, or that data given in Python replaced."""
    idle = why_idle(method_named(config.method), flatten(config))
    replaced = _WHICH_DATA if facts.origin.own_data else ()
    lines = toml.dump(config, f"feddst {facts.version}").splitlines()
    return "\n".join(line for line in lines if (name := line.partition(" ")[0]) not in replaced and idle(name) is None)


def command(config: RunConfig) -> str:
    """The command line that trains the same: what differs from the defaults."""
    usual = flatten(config_of({"method": config.method})) | {"method": RunConfig.method}
    changed = {name: value for name, value in flatten(config).items() if value != usual[name]}
    return shlex.join(["feddst", "run", *as_words(changed)])


def _terms(facts: Facts) -> str:
    origin = facts.origin
    data = "The data's own licence may bear on it."
    if origin.inputs is not None and origin.inputs.data == "mnist" and not origin.own_data:
        data = "MNIST is under CC BY-SA 3.0."
    return (
        f"## Use and licence\n\nA result of an experiment: it was tested on the examples named above "
        "and on nothing else. "
        f"No licence has been chosen for it; whoever publishes it does. {data}"
    )


def _plain(text: str) -> str:
    """A name from outside, escaped so that Markdown shows it as it is, on one line: no markup, tag or link."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    # Entities for what HTML reads: not every Markdown knows a backslash before them.
    return html.escape(re.sub(r"[\\`*_\[\]#|~!$:@]", r"\\\g<0>", line), quote=False)


def _sent(total: int, masks: int) -> str:
    return f"{total / _MIB:,.2f} MiB" + (f", {masks / _MIB:,.2f} of it masks" if masks else "")


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
