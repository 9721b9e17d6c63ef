"""Run configs in Python, by the same names as on the command line."""

from typing import Any

from feddst.options import dotted
from feddst.runtime.config import RunConfig, config_of, refuse_ineffective
from feddst.runtime.old_names import named_now, renewed
from feddst.runtime.presets import preset_options


def configure(preset: str = "", **options: Any) -> RunConfig:
    """A checked config: a preset's options if one is named, then your own; a group is a dict.

    What neither sets has the method's default.

    `configure(method="feddst", rounds=50, data={"clients": 10})` is `--method feddst --rounds 50 --data.clients 10`.
    """
    own = renewed(dotted(options), "configure")
    config = config_of({**(preset_options(preset, "run") if preset else {}), **own})
    refuse_ineffective([config], named_now(own))
    config.check()
    return config
