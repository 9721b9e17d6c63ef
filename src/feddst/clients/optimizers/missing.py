"""What stands for an optimizer that is not here."""

from dataclasses import dataclass
from typing import ClassVar

from feddst.core import Tensors
from feddst.core.optimizer import ClientOptimizer, Stepper
from feddst.errors import OptionError


@dataclass(frozen=True)
class MissingOptimizer(ClientOptimizer):
    """Stands for a user's optimizer that a stored run was trained with, and that is not here now."""

    name: str  # type: ignore[misc]
    stands_in: ClassVar[bool] = True

    def begin(self, params: Tensors) -> Stepper:
        raise OptionError(self.remedy)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return f"local.optimizer {self.name} is one of your own: give it again, as optimizer="
