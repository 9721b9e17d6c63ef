"""Any optimizer of `torch.optim`, and any other that has its interface."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from feddst.clients.optimizers.missing import MissingOptimizer
from feddst.core import LocalTraining, Masks, Tensors
from feddst.core.optimizer import OPTIMIZERS, ClientOptimizer, Stepper
from feddst.core.registry import register, same_class
from feddst.errors import OptionError


class Torch(ClientOptimizer):
    """A class of `torch.optim` as a client optimizer: `feddst.register(Torch(torch.optim.NAdam, momentum_decay=0.01))`.

    Without a `name` it is called after the class and its constants. `lr` is `local.lr`. `weight_decay` is `local.l2` if
    it is decoupled, as AdamW's is; otherwise L2 is in the gradient that it is given, as for every optimizer.
    """

    heeds = ()

    def __init__(self, kind: type[torch.optim.Optimizer], name: str = "", **constants: Any) -> None:
        if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
            raise OptionError(f"a client optimizer must be a class of torch.optim, got {kind!r}")
        for constant, option in (("lr", "local.lr"), ("weight_decay", "local.l2")):
            if constant in constants:
                raise OptionError(f"{constant} of {kind.__name__} is the option {option}, got {constants[constant]!r}")
        own = ", ".join(f"{constant}={value!r}" for constant, value in constants.items())
        self.name = name or f"torch-{kind.__name__.lower()}" + (f" {own}" if own else "")  # type: ignore[misc]
        self._kind = kind
        self._constants = constants
        self._decays, self.decoupled = self._tried()  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Torch) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self.name)

    def _told(self) -> tuple[object, ...]:
        return self.name, self._kind, self._constants

    def begin(self, params: Tensors) -> Stepper:
        return _TorchSteps(self._made(list(params.values())), params, self._decays, self.decoupled)

    def _made(self, params: list[Tensor]) -> torch.optim.Optimizer:
        """The optimizer of these parameters; its learning rate is not set yet."""
        make: Callable[..., torch.optim.Optimizer] = self._kind
        try:
            return make(params, **({"lr": 1.0} | self._constants))
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            raise self._refused(error) from None

    def _tried(self) -> tuple[bool, bool]:
        """Whether it has a weight decay, and whether that is decoupled: something else than L2 in the gradient."""
        try:
            decays = "weight_decay" in self._made([torch.zeros(2, 2)]).defaults
            within, apart = (self._steps(l2, decay) for l2, decay in ((0.5, 0.0), (0.0, 0.5)))
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            raise self._refused(error) from None
        return decays, decays and not torch.allclose(within, apart, rtol=1e-3)

    def _steps(self, l2: float, decay: float) -> Tensor:
        """Where three steps lead, with L2 in the gradient or with a weight decay."""
        theta = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]]))
        optimizer = self._made([theta])
        for group in optimizer.param_groups:
            group["lr"] = 0.1
            if "weight_decay" in group:
                group["weight_decay"] = decay
        with torch.no_grad():
            for slope in (1.0, -0.5, 2.0):
                theta.grad = slope * torch.tensor([[1.0, 2.0], [-1.0, 0.25]]) + l2 * theta
                optimizer.step()
        return theta.detach()

    def _refused(self, error: Exception) -> OptionError:
        reason = str(error).strip().partition("\n")[0]
        return OptionError(f"{self._kind.__name__} cannot train clients: {reason}")


class _TorchSteps(Stepper):
    """Steps of a `torch.optim` optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, params: Tensors, decays: bool, decoupled: bool) -> None:
        self._optimizer = optimizer
        self._params = params
        self._decays = decays
        self._decoupled = decoupled

    @property
    def slots(self) -> dict[str, dict[str, Tensor]]:
        """The state that it keeps for each weight; counts of steps and the like are no slots."""
        found: dict[str, dict[str, Tensor]] = {}
        for name, theta in self._params.items():
            for slot, value in self._optimizer.state.get(theta, {}).items():
                if isinstance(value, Tensor) and value.shape == theta.shape:
                    found.setdefault(slot, {})[name] = value
        for kept in found.values():
            kept |= {name: torch.zeros_like(theta) for name, theta in self._params.items() if name not in kept}
        return found

    def step(self, gradients: Tensors, masks: Masks, local: LocalTraining) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = local.lr
            if self._decays:
                group["weight_decay"] = local.l2 if self._decoupled else 0.0
        for name, theta in self._params.items():
            theta.grad = gradients.get(name)
        self._optimizer.step()
        for name, theta in self._params.items():
            theta.grad = None
            if name in masks:
                kept = self._optimizer.state.get(theta, {}).values()
                for value in (theta, *kept):
                    if isinstance(value, Tensor) and value.shape == theta.shape:
                        value.masked_fill_(~masks[name], 0.0)


def optimizer_named(given: Any) -> str:
    """The value of `local.optimizer` for a class of `torch.optim`, with constants if it is a `partial`, or an object.

    It is registered if it is not known yet.
    """
    if isinstance(given, str):
        return given
    constants: dict[str, Any] = {}
    if isinstance(given, partial) and not given.args:
        given, constants = given.func, dict(given.keywords)
    if isinstance(given, ClientOptimizer):
        one = given
    elif isinstance(given, type) and issubclass(given, torch.optim.Optimizer):
        one = Torch(given, **constants)
    else:
        raise OptionError(
            f"optimizer must be a class of torch.optim, a functools.partial of one, or a client optimizer, "
            f"got {repr(given) if isinstance(given, type) else 'an object of ' + type(given).__name__}"
        )
    known = OPTIMIZERS.get(one.name)
    if known is None or isinstance(known, MissingOptimizer):
        register(one)
    elif same_class(known, one) and vars(known) == vars(one):
        OPTIMIZERS[one.name] = one  # its class may have been defined anew
    else:
        raise OptionError(f"another optimizer is registered as {one.name!r}: give this one a name of its own")
    return one.name
