"""Objects as bytes between a run and its own worker processes.

pickle sends a class by its name, and a worker cannot import what a script, a notebook or a function defines.
cloudpickle sends such a class itself. Nothing that comes from elsewhere is ever read this way.
"""

import io
import pickle
from types import FunctionType
from typing import Any, Literal

Pickling = Literal["by-name", "by-value"]
"""How classes and functions of the user's script travel; those of modules travel by name in either way."""

REMEDY = "pip install 'feddst[notebook]'"


def pack_first(message: Any) -> tuple[Pickling, bytes]:
    """A message as bytes, and how it was packed: by name, unless a worker could not rebuild it then.

    Raises `pickle.PicklingError`, with the reason and a remedy, if neither way is possible.
    """
    body = io.BytesIO()
    try:
        _ByName(body, pickle.HIGHEST_PROTOCOL).dump(message)
        return "by-name", body.getvalue()
    except Exception as error:
        reason = _in_a_line(error)
    try:
        return "by-value", packed(message, "by-value")
    except ImportError:
        raise pickle.PicklingError(f"{reason} ({REMEDY} brings what sends it all the same)") from None
    except Exception as error:
        raise pickle.PicklingError(_in_a_line(error)) from None


def packed(message: Any, pickling: Pickling) -> bytes:
    """A message as bytes, which `pickle.loads` reads."""
    if pickling == "by-name":
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    import cloudpickle

    body: bytes = cloudpickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return body


class _ByName(pickle.Pickler):
    """Refuses what has a name that means something else in another process."""

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, type | FunctionType) and item.__module__ == "__main__":
            raise pickle.PicklingError(f"{item.__qualname__} is defined in a script or notebook")
        return NotImplemented


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
