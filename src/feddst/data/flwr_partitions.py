"""Clients as `flwr-datasets` divides them: the partitions of a `FederatedDataset`, or of a partitioner with a data set.

Both are known by their methods, so that nothing here needs the package.
"""

from functools import partial
from typing import Any

from feddst.data.conversion import name_of
from feddst.errors import DataError


def partitions_of(source: Any, split: str) -> list[Any]:
    """Each client's part of a split, a data set of Hugging Face's; a partitioner has one split only."""
    if not hasattr(source, "load_partition"):
        raise DataError(
            f"flwr-datasets: needs a FederatedDataset, or a partitioner with a data set, got {name_of(source)}; for a "
            "list with one data set for each client there is Federation.from_clients"
        )
    if not hasattr(source, "load_split"):
        if split:
            raise DataError(f"flwr-datasets: split={split!r} is for a FederatedDataset, got {name_of(source)}")
        return _loaded(source, {})
    partitioners = _asked("partitioners", lambda: source.partitioners)
    if not split and len(partitioners) != 1:
        raise DataError(f"flwr-datasets: say which split the clients share: split=…, one of {', '.join(partitioners)}")
    split = split or next(iter(partitioners))
    if split not in partitioners:
        raise DataError(
            f"flwr-datasets: split must be one with a partitioner, {', '.join(partitioners)}, got {split!r}"
        )
    return _loaded(source, {"split": split}, partitioners[split])


def split_of(source: Any, split: str) -> Any:
    """A split as a whole, to test on."""
    if not hasattr(source, "load_split"):
        raise DataError(
            f"flwr-datasets: test={split!r} names a split of a FederatedDataset, got {name_of(source)}; give a data "
            "set, or the share of its own examples that each client is tested on"
        )
    return _asked(f"test={split!r}", lambda: source.load_split(split))


def _loaded(source: Any, given: dict[str, str], partitioner: Any = None) -> list[Any]:
    count = _asked("the number of partitions", lambda: (partitioner or source).num_partitions)
    return [_asked(f"partition {at}", partial(source.load_partition, at, **given)) for at in range(count)]


def _asked(what: str, ask: Any) -> Any:
    """What the package answers; its errors, of many kinds, become one line."""
    try:
        return ask()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"flwr-datasets: {what} cannot be had: {reason}") from error
