"""The numbers of a round that logs show, under the names that `metrics.jsonl` has for them."""

from feddst.runtime.metrics import SCORES, Row

GROUPS = {
    "loss": ("loss", "train_loss"),
    "mask": ("density", "density_all", "entered", "left"),
    "bytes": (
        "upload_bytes",
        "upload_mask_bytes",
        "upload_header_bytes",
        "download_bytes",
        "download_mask_bytes",
        "download_header_bytes",
    ),
    "flops": ("flops_dense", "flops_sparse", "forward_flops_dense", "forward_flops_sparse"),
    "round": ("seconds", "clients", "refused", "missing", "late"),
}
"""Numbers that every run has and that are shown together, by heading."""

ALWAYS = "seconds"
"""A number that every round has."""

_HEADINGS = {name: group for group, names in GROUPS.items() for name in names}


def scalars(row: Row) -> dict[str, float]:
    """The numbers of a round by name; those that it does not have are left out."""
    scores = {row.metric.name + kind: getattr(row, score) for kind, score in SCORES.items()}
    values = {**scores, **row.others, **{name: getattr(row, name) for name in _HEADINGS}}
    return {name: float(value) for name, value in values.items() if value is not None}


def heading(name: str) -> str:
    """What a number is shown under: a metric's figures under the metric's own name."""
    if name in _HEADINGS:
        return _HEADINGS[name]
    ending = next((kind for kind in SCORES if kind and name.endswith(kind)), "")
    return name.removesuffix(ending)
