"""When masks are readjusted, and how much of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from feddst.options import option


@dataclass(frozen=True)
class Timetable:
    """The readjustment schedule: ΔR, R_end, E_p and α_r."""

    alpha: float = option(0.05, "α: share of each layer's weights readjusted in round 1", at_least=0, at_most=1)
    every: int = option(10, "ΔR: rounds between readjustments", at_least=1)
    until: int = option(200, "R_end: no readjustment from this round on", at_least=1)
    after_epoch: int = option(0, "E_p: readjust after this local epoch; 0: after the last", at_least=0)
    decay: Literal["cosine", "constant", "linear"] = option("cosine", "how α falls towards R_end")
    counting: Literal["from-one", "published"] = option(
        "from-one",
        "rounds r = 1, 2, … with r mod ΔR = 0, or (published code) r = 0, 1, … with (r−1) mod ΔR = 0",
    )
    dropped: Literal["share", "resolved"] = option(
        "share",
        "what a layer drops: α_r of its budget, or (published code) what sparsity.distribution leaves it less at "
        "sparsity S + (1−S)·α_r",
    )

    def share(self, r: int) -> float:
        """α_r if round r readjusts, else 0. Rounds are numbered from 1 here, whatever `counting` says."""
        if self.counting == "published":
            due, ended = (r - 2) % self.every == 0, r - 1 >= self.until
        else:
            due, ended = r % self.every == 0, r >= self.until
        return self.decayed(r) if due and not ended else 0.0

    def decayed(self, r: int) -> float:
        """α_r, whether or not round r readjusts."""
        progress = (r - 1) / self.until
        if self.decay == "cosine":
            return self.alpha / 2 * (1 + math.cos(math.pi * progress))
        if self.decay == "linear":
            return self.alpha * max(0.0, 1 - progress)
        return self.alpha

    def drops(self, r: int, budgets: Mapping[str, int]) -> dict[str, int]:
        """How many weights each layer drops in round r; empty when there is nothing to drop."""
        share = self.share(r)
        counts = {name: round(share * budget) for name, budget in budgets.items()}
        return counts if any(counts.values()) else {}

    def epoch(self, epochs: int) -> int:
        """E_p, counted from 1, where clients train for `epochs`."""
        return self.after_epoch or epochs
