"""The paper's tables and sweeps made again, `feddst reproduce`, and studies of one's own, `feddst study`.

`python -m feddst.experiment.reproduce` is `feddst reproduce` where only torch and numpy are installed.
"""

from feddst.experiment.reproduce.carry_out import reproduce
from feddst.experiment.reproduce.config import ReproduceConfig
from feddst.experiment.reproduce.record import Record, load_record
from feddst.experiment.reproduce.study import StudyConfig

__all__ = ["Record", "ReproduceConfig", "StudyConfig", "load_record", "reproduce"]
