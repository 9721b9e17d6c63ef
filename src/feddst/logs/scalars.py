"""The numbers of a round that logs show, under the names that `metrics.jsonl` has for them."""

from feddst.runtime.metrics import Row

GROUPS = {
    "accuracy": ("accuracy", "accuracy_worst", "accuracy_global", "accuracy_personal"),
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
"""Numbers that are shown together, by heading."""

ALWAYS = "seconds"
"""A number that every round has."""


def scalars(row: Row) -> dict[str, float]:
    """The numbers of a round by name; those that it does not have are left out."""
    values = {name: getattr(row, name) for names in GROUPS.values() for name in names}
    return {name: float(value) for name, value in values.items() if value is not None}
