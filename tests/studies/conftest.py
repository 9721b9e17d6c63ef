"""The small runs of the runtime's tests."""

from ..runtime.conftest import small_config, small_data

__all__ = ["small_config", "small_data"]
