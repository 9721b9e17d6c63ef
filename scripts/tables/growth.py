"""What the studies of masks, of growth and of few bytes tell besides accuracies under caps."""

from typing import Any

import numpy as np
import torch

from feddst.core import Layer
from feddst.methods import Sprout
from feddst.models import ModelConfig, network, prunable_layers
from feddst.models.flops import multiply_adds
from feddst.runtime.anatomy import anatomy_of
from feddst.runtime.config import config_of
from feddst.runtime.presets import preset_options
from feddst.runtime.wording import NOTHING
from feddst.sparsity import Sparsity
from feddst.studies.reproduce import Record
from feddst.studies.reproduce.paper import PAPER
from feddst.studies.reproduce.table import cell, difference
from scripts.tables.accuracy import caps, named, seeds
from scripts.tables.blocks import block
from scripts.tables.records import MIB, bench, caption, made, row_of, source, study, study_source, with_caption

TO_ERK = "to-erk"
"""Sprout that begins with shares by the root and ends with those of ERK."""
SPREADS = {
    "erk": "ERK",
    TO_ERK: "Sprout from the root to ERK, in the end",
    "root": "by the root",
    "even": "equally many",
}
LEVELS = (0.8, 0.9, 0.95, 0.98)
NETWORKS = {
    "MNIST": (ModelConfig(name="mnist-cnn"), (1, 28, 28)),
    "CIFAR-10": (ModelConfig(name="cifar10-cnn"), (3, 32, 32)),
}
TABLES = {"mnist": ("table1", "MNIST"), "cifar10": ("table2", "CIFAR-10")}
STATIC = ("randommask", "root")
"""How rows of networks whose mask never moves begin."""


@block
def after_rounds(name: str, rounds: str, *words: str) -> str:
    """The best accuracy within so many rounds, and what has been uploaded by then."""
    record, counts = study(name), [int(count) for count in rounds.split(",")]
    wanted = [named(word) for word in words] or [(row.name, "") for row in made(record)]
    rows = [["", *(f"{count:,} rounds" for count in counts)]]
    rows += [[title or row_of(record, key).title, *(_after(record, key, n) for n in counts)] for key, title in wanted]
    best = f"Best mean client accuracy [%] so far, and what has been uploaded, means over {seeds(record)}."
    return with_caption(rows, best, f"From {study_source(name)}.")


def _after(record: Record, name: str, rounds: int) -> str:
    runs = row_of(record, name).runs
    if min(run.rows[-1].round for run in runs) < rounds:
        return NOTHING
    points = [[point for point in run.rows if point.round <= rounds] for run in runs]
    best = np.mean([max(100 * point.score for point in run) for run in points])
    return f"{best:.1f}, {np.mean([run[-1].upload_bytes for run in points]) / MIB:.1f} MiB"


def reaching(record: Record, name: str, accuracy: float) -> float:
    """Bytes uploaded when the mean over seeds of the best so far has come to an accuracy [%]."""
    runs = row_of(record, name).runs
    best = np.maximum.accumulate([[100 * point.score for point in run.rows] for run in runs], axis=1).mean(axis=0)
    first = int(np.argmax(best >= accuracy))
    if best[first] < accuracy:
        raise ValueError(f"{name} does not reach {accuracy} %")
    return max(run.rows[first].upload_bytes for run in runs)


def papers_end(data: str) -> tuple[float, float]:
    """What the paper's FedDST has at its largest cap [%], and that cap in bytes."""
    table, _ = TABLES[data]
    return PAPER[table]["feddst"][-1].mean, study(f"{table}-paper").caps[-1] * 2**30


@block
def upload_for_the_papers_accuracy(data: str, name: str, *words: str) -> str:
    """The upload with which rows reach what the paper's FedDST has in the end."""
    record, (accuracy, paper) = study(name), papers_end(data)
    rows = [[f"to {accuracy:.2f} %, {TABLES[data][1]}", "upload", "of the paper's"]]
    rows.append(["FedDST, as the paper reports it", f"{paper / 2**30:g} GiB", "100 %"])
    for key, title in map(named, words):
        sent = reaching(record, key, accuracy)
        rows.append([title or row_of(record, key).title, f"{sent / MIB:,.1f} MiB", f"{100 * sent / paper:.2f} %"])
    return with_caption(
        rows, f"Upload at which the mean over {seeds(record)} gets there.", f"From {study_source(name)}."
    )


@block
def upload_for_the_others_end(name: str, *pairs: str) -> str:
    """The upload with which one row reaches what another has under the last cap."""
    record = study(name)
    rows = [["", "accuracy", "upload"]]
    for pair in pairs:
        one, _, other = pair.partition("/")
        end = cell(record, row_of(record, other), record.caps[-1]).mean
        titles = [row_of(record, each).title for each in (other, one)]
        rows.append([titles[0], f"{end:.2f} %", f"{record.caps[-1]:g} GiB"])
        rows.append([titles[1], "the same", f"{reaching(record, one, end) / 2**30:.1f} GiB"])
    return with_caption(rows, f"Means over {seeds(record)}.", f"From {study_source(name)}.")


@block
def beside_the_best_static(name: str) -> str:
    """Sprout less the best of the static networks, chosen at each cap by the same seeds."""
    record = study(name)
    static = [row.name for row in made(record) if row.name.startswith(STATIC)]
    best = [max(static, key=lambda row: cell(record, row_of(record, row), cap).mean) for cap in record.caps]
    rows = [["minus the best static network", *caps(record)]]
    for row in made(record):
        if row.name not in static:
            pairs = zip(best, record.caps, strict=True)
            rows.append([row.title, *(str(difference(record, row.name, other, cap)) for other, cap in pairs)])
    rows.append(["the best static network", *(row_of(record, each).title for each in best)])
    return with_caption(
        rows,
        "Differences in points on the same seeds, with 95 % bootstrap intervals.",
        "The best static network is chosen in hindsight, by these seeds.",
        f"From {study_source(name)}.",
    )


def budgets_of(spread: str, level: float, layers: tuple[Layer, ...]) -> dict[str, int]:
    """How many weights each layer keeps."""
    if spread != TO_ERK:
        return Sparsity(level, spread).budgets(layers)  # type: ignore[arg-type]
    sprout = Sprout(sparsity=Sparsity(level))
    return sprout.budgets(layers, sprout.sprout.end)


@block
def multiplications() -> str:
    """What a forward pass computes with each distribution, as a share of the dense network's."""
    rows = [["", *(f"S = {level:g}" for level in LEVELS)]]
    for data, (config, shape) in NETWORKS.items():
        module = network(config, shape, 10)
        layers, counts = prunable_layers(module), multiply_adds(module, torch.zeros(1, *shape))
        for spread, words in SPREADS.items():
            shares = []
            for level in LEVELS:
                budgets = budgets_of(spread, level, layers)
                used = sum(counts[layer.name] * budgets[layer.name] / layer.size for layer in layers)
                shares.append(f"{100 * used / sum(counts.values()):.0f} %")
            rows.append([f"{data}, {words}", *shares])
    return with_caption(rows, "Multiplications for one image, as a share of the dense network's; computed.")


@block
def shares_of_layers(level: str) -> str:
    """How many weights ERK leaves each layer of the MNIST network."""
    config, shape = NETWORKS["MNIST"]
    layers = prunable_layers(network(config, shape, 10))
    budgets = {words: budgets_of(key, float(level), layers) for key, words in SPREADS.items() if key != TO_ERK}
    rows = [["MNIST network", "weights", *budgets]]
    rows += [
        [f"`{layer.name}`", f"{layer.size:,}", *(f"{one[layer.name]:,}" for one in budgets.values())]
        for layer in layers
    ]
    return with_caption(rows, f"Weights that each layer keeps at S = {level}, by distribution; computed.")


@block
def forward_pass() -> str:
    """FLOPs of a forward pass of the paper's networks."""
    rows = [["MFLOPs for one image", "dense", "uniform", "ERK, paper's text", "published code"]]
    for table, data in (("table1", "MNIST"), ("table2", "CIFAR-10"), ("table3", "CIFAR-100")):
        text, code = (preset_options(f"{table}-feddst{suffix}", "run") for suffix in ("", "-published"))
        spreads = ({**text, "sparsity.distribution": "uniform"}, text, code)
        shown = [anatomy_of(config_of(options)) for options in spreads]
        told = [shown[0].forward_flops_dense, *(one.forward_flops_sparse for one in shown)]
        rows.append([f"{data}, S = {text['sparsity.level']:g}", *(f"{flops / 1e6:.2f}" for flops in told)])
    return with_caption(rows, "A multiply-add counts as two FLOPs; computed by the commands below.")


@block
def life_of_masks() -> str:
    """What becomes of weights that have grown, and of those from the start."""
    titles = {
        "sprout": "Sprout, a tenth every 10 rounds",
        "rare": "Sprout, three tenths every 50 rounds",
        "float32": "Sprout, updates in float32",
        "spared": "Sprout, new weights spared for 50 rounds",
        "feddst": "FedDST, α = 0.05",
    }
    rows = [["", "not moved before the next change", "leaves at the first change that it may", "original mask left"]]
    for name, title in titles.items():
        row = bench("mask-life")["rows"][name]
        entered, unmoved = (_total(row, what) for what in ("entered", "newest_unmoved"))
        survival = row["survival"]["entered"]
        gone = next(1 - share for share in survival if share < 1)
        told = [unmoved / entered, gone, row["survival"]["original"][-1]]
        rows.append([title, *(f"{100 * share:.0f} %" for share in told)])
    return with_caption(rows, "Of what grows, and of the mask at the start.", f"From {source('mask-life')}.")


def _total(row: dict[str, Any], what: str) -> int:
    """How many weights `what` counts, in all layers and at all changes but the last."""
    return sum(sum(layer[what][: len(row["rounds"]) - 1]) for layer in row["layers"].values())


@block
def crowding() -> str:
    """Where growth puts weights in the first linear layer."""
    titles = {
        "static": "RandomMask",
        "random": "Sprout, anywhere",
        "gradient": "Sprout, by gradients",
        "feddst": "FedDST, by gradients after training",
    }
    rows = [["first linear layer", "rounds", "weights of the fullest tenth of units", "inputs without a weight"]]
    for name, title in titles.items():
        row = bench("crowding")["rows"][name]
        told = [row["fullest_outputs"], row["empty_inputs"]]
        rows.append([title, f"{row['round']}", *(f"{100 * share:.0f} %" for share in told)])
    return with_caption(rows, f"After the last round; from {source('crowding')}.")


@block
def movement_by_layer() -> str:
    """How far weights of each layer move."""
    layers = bench("mask-life")["rows"]["sprout"]["layers"]
    least = layers["fc1.weight"]["movement"]
    told = ", ".join(f"`{name}` {layer['movement'] / least:.1f}" for name, layer in layers.items())
    return caption(f"How far a weight moves in a round, in units of `fc1.weight`: {told}. From {source('mask-life')}.")
