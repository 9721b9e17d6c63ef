"""The paper's tables and sweeps, made again: `feddst reproduce`, or `python -m feddst.experiment.reproduce`."""

from feddst.experiment.reproduce.carry_out import reproduce
from feddst.experiment.reproduce.config import ReproduceConfig
from feddst.experiment.reproduce.record import Record, load_record

__all__ = ["Record", "ReproduceConfig", "load_record", "reproduce"]
