"""The metrics of the built-in objectives, by what they are computed from."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from feddst.core.metric import Mean, Whole


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    """Which examples get the highest score for their class; outputs: [n, classes], targets: int64 [n]."""
    return outputs.argmax(dim=1) == targets


ACCURACY = Mean("accuracy", percent=True, parts=right)
"""The share of examples that are put into the right class."""


def decided(outputs: Tensor) -> Tensor:
    """Whether a score says yes: its probability is above a half."""
    return outputs > 0


def right_decisions(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each example [n], the share of its yes-or-no answers that are right."""
    same = decided(outputs) == (targets.reshape(outputs.shape) > 0.5)
    return same.reshape(len(outputs), -1).double().mean(dim=1)


def found_and_missed(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each example [n, 3]: answers that are rightly yes, wrongly yes, and wrongly no."""
    said = decided(outputs).reshape(len(outputs), -1)
    true = (targets.reshape(outputs.shape) > 0.5).reshape(len(outputs), -1)
    return torch.stack([(said & true).sum(1), (said & ~true).sum(1), (~said & true).sum(1)], dim=1)


def f1(sums: Tensor) -> float:
    """2·TP / (2·TP + FP + FN); 1 if there is nothing to find and nothing was found."""
    true, false, missed = sums.tolist()
    whole = 2 * true + false + missed
    return 2 * true / whole if whole else 1.0


def area(outputs: Tensor, targets: Tensor) -> float:
    """The area under the ROC curve: how often a positive example scores above a negative one; ties count half.

    NaN if all examples are of one kind.
    """
    scores, positive = outputs.reshape(-1).double(), targets.reshape(-1) > 0.5
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others:
        return math.nan
    _, place, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = sizes.cumsum(0) - (sizes - 1) / 2  # the mean rank of equal scores, from 1
    return float((ranks[place[positive]].sum() - count * (count + 1) / 2) / (count * others))


BINARY_ACCURACY = Mean("accuracy", percent=True, parts=right_decisions)
F1 = Mean("f1", parts=found_and_missed, value=f1)
AUC = Whole("auc", function=area)


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each example's mean squared error, [n]."""
    return _errors(outputs, targets).square().mean(dim=1)


def distances(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each example's mean absolute error, [n]."""
    return _errors(outputs, targets).abs().mean(dim=1)


def root(sums: Tensor) -> float:
    """The root of a mean."""
    return math.sqrt(float(sums[0] / sums[1]))


def variances(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each example and each of its q numbers y: (y − output)², y, y² and 1, [n, 4q]."""
    errors, true = _errors(outputs, targets), targets.reshape(len(targets), -1).double()
    return torch.cat([errors.square(), true, true.square(), torch.ones_like(true)], dim=1)


def explained(sums: Tensor) -> float:
    """R²: 1 − Σ(y − output)² / Σ(y − mean y)², averaged over the numbers of an example; NaN if all y are equal."""
    errors, total, squared, count = sums.reshape(4, -1)
    spread = squared - total.square() / count
    varied = spread > 1e-13 * squared  # less is rounding: float32 has no finer numbers
    return float(torch.where(varied, 1 - errors / spread, math.nan).mean())


RMSE = Mean("rmse", higher_is_better=False, parts=squares, value=root)
MAE = Mean("mae", higher_is_better=False, parts=distances)
R2 = Mean("r2", parts=variances, value=explained)


def _errors(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.double().reshape(len(outputs), -1) - targets.double().reshape(len(targets), -1)).detach()


def counted(targets: Tensor, ignored: int) -> Tensor:
    """Which places have a class, [n, places]."""
    return targets.reshape(len(targets), -1) != ignored


def right_places(outputs: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """For each example [n, 2]: places with the right class, and places that have a class."""
    real = counted(targets, ignored)
    same = (outputs.argmax(dim=1) == targets).reshape(real.shape)
    return torch.stack([(same & real).sum(1), real.sum(1)], dim=1)


def surprises(outputs: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """For each example [n, 2]: the sum of the negative logarithms of its places' probabilities, and their number."""
    losses = F.cross_entropy(outputs, targets, ignore_index=ignored, reduction="none")
    return torch.stack([losses.reshape(len(losses), -1).sum(1), counted(targets, ignored).sum(1)], dim=1)


def exponential(sums: Tensor) -> float:
    """e to a mean."""
    return math.exp(min(float(sums[0] / sums[1]), 700.0))


def overlaps(outputs: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """For each example and each of k classes: places where both say the class, and where either does, [n, 2k]."""
    classes = outputs.shape[1]
    real = counted(targets, ignored)
    said = outputs.argmax(dim=1).reshape(real.shape)
    true = targets.reshape(real.shape)
    each = [((said == one) & real, (true == one) & real) for one in range(classes)]
    both = torch.stack([(one & other).sum(1) for one, other in each], dim=1)
    either = torch.stack([(one | other).sum(1) for one, other in each], dim=1)
    return torch.cat([both, either], dim=1)


def mean_overlap(sums: Tensor) -> float:
    """The mean over classes, those that occur, of the places where both say the class by those where either does."""
    both, either = sums.reshape(2, -1)
    occurs = either > 0
    return float((both[occurs] / either[occurs]).mean()) if occurs.any() else math.nan
