"""The paper's tables and sweeps made again, `feddst reproduce`, and your own studies, `feddst study`.

`python -m feddst.studies.reproduce` is `feddst reproduce` where only torch and numpy are installed.
"""

from feddst.studies.reproduce.carry_out import reproduce
from feddst.studies.reproduce.config import ReproduceConfig
from feddst.studies.reproduce.record import Record, load_record
from feddst.studies.reproduce.study import StudyConfig

__all__ = ["Record", "ReproduceConfig", "StudyConfig", "load_record", "reproduce"]
