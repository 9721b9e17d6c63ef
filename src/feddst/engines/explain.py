"""Which engine will train a network, and why it is not the one that was asked for."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from torch import nn

from feddst.core import ClientPlan
from feddst.data import Dataset
from feddst.engines.native.known import why_unknown
from feddst.engines.reference import ReferenceEngine
from feddst.engines.select import EngineConfig, Native, Reference, make_engine


def explain_engine(
    config: EngineConfig, module: nn.Module, dataset: Dataset, plan: ClientPlan, aggregator: str
) -> tuple[str, list[str]]:
    """The name of the engine that a run gets, and the reasons why it is not, or not always, `engine.kind`.

    The engine is made as a run makes it, and let go of.
    """
    with _heard() as reasons:
        engine = make_engine(replace(config, workers=1), module, dataset, plan.local, aggregator=aggregator)
    with closing(engine):
        name = Reference.name if isinstance(engine, ReferenceEngine) else config.kind
    if name == Native.name and (why := why_unknown(plan)):
        reasons.append(f"training with PyTorch, and evaluating with the kernels: {why}")
    return name, reasons


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What engines log meanwhile, instead of logging it."""
    logger, notes = logging.getLogger("feddst.engines"), _Notes()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(notes)
    try:
        yield notes.lines
    finally:
        logger.removeHandler(notes)
        logger.propagate = propagated
