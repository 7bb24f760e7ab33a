"""Are a patched server's answers still those of the stock one? The rule, on log-probabilities step by step (pure).

Both servers follow the same token ids: the reference's own greedy choice. At each step the candidate's log-probability
of the reference's token is compared, and its greedy choice. Kernels that sum in another order never agree bit for bit,
so the yardstick is how much the stock server differs from itself (run twice, batched otherwise the second time).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ALLOWED_FACTOR = 2.0
"""The candidate may differ from the reference by at most this many times what the reference differs from itself."""

BLIND_SHARE = 0.25
"""A fault that moves the answers by this share of what another past moves them by has to be seen."""


@dataclass(frozen=True)
class Step:
    """One greedy step: the choices in order of log-probability, best first (at least two of them)."""

    choices: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise ValueError(f"a step needs at least its two best tokens, got {len(self.choices)}")

    @property
    def token(self) -> int:
        return self.choices[0][0]

    @property
    def gap(self) -> float:
        """How far the best token is ahead of the second."""
        return self.choices[0][1] - self.choices[1][1]

    def logprob(self, token: int) -> float | None:
        """Log-probability of a token, or None where it is not among the choices that were asked for."""
        return next((value for choice, value in self.choices if choice == token), None)


Run = Sequence[Sequence[Step]]
"""One server's steps, prompt by prompt."""


@dataclass(frozen=True)
class Difference:
    """One step of one prompt. ``amount`` is at least how far the log-probabilities of the same token lie apart.

    ``exact`` is False where the candidate did not rank the token at all: then the amount is a lower bound.
    """

    prompt: int
    step: int
    token: int
    other_token: int
    amount: float
    gap: float
    exact: bool = True


@dataclass(frozen=True)
class OutputVerdict:
    """``ok`` only where something was compared and every step is within the bound."""

    ok: bool
    steps: int
    noise: float
    bound: float
    largest: float
    changed_tokens: int
    deterministic: bool
    problems: tuple[str, ...]


def differences(reference: Run, other: Run) -> list[Difference]:
    """Step by step differences of two runs along the reference's tokens. Raises ValueError on unequal shapes."""
    shapes = [[len(steps) for steps in run] for run in (reference, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the runs are not of the same prompts and steps: {shapes[0]} and {shapes[1]}")
    found = []
    for prompt, (ours, theirs) in enumerate(zip(reference, other, strict=True)):
        for index, (step, second) in enumerate(zip(ours, theirs, strict=True)):
            value = second.logprob(step.token)
            exact = value is not None
            if value is None:
                # An unranked token lies below the last one that was ranked.
                value = min(step.choices[0][1], second.choices[-1][1])
            amount = abs(step.choices[0][1] - value)
            found.append(Difference(prompt, index, step.token, second.token, amount, step.gap, exact))
    return found


def judge(reference: Run, again: Run, candidate: Run, floor: float = 0.0) -> OutputVerdict:
    """Hold ``candidate`` to ALLOWED_FACTOR times what ``again`` (the reference server once more) shows, or ``floor``.

    A greedy token may differ only where the reference's own two best are closer than the bound. A reference that
    agrees with itself exactly gives no yardstick: then only equal output or a ``floor`` above 0 (in nats) can pass.
    Raises ValueError on runs of different shapes.
    """
    own = differences(reference, again)
    found = differences(reference, candidate)
    noise = max((d.amount for d in own), default=0.0)
    bound = max(ALLOWED_FACTOR * noise, floor)
    deterministic = noise == 0.0 and all(d.token == d.other_token for d in own)
    problems = [_problem(d, bound) for d in found]
    told = tuple(p for p in problems if p)
    if not found:
        told = ("nothing was compared: the reference run has no steps",)
    elif not math.isfinite(noise):
        told = (f"the reference differs from itself by {noise}: it is no yardstick", *told)
    amounts = [d.amount for d in found]
    largest = math.nan if any(math.isnan(a) for a in amounts) else max(amounts, default=0.0)
    changed = sum(d.token != d.other_token for d in found)
    return OutputVerdict(not told, len(found), noise, bound, largest, changed, deterministic, told)


def blind(reference: Run, elsewhere: Run, bound: float) -> bool:
    """True where this check could hardly fail: ``bound`` is a good part of what another past moves the answers by.

    ``elsewhere`` are the reference server's own steps along the same tokens after prompts that agree with the
    reference's in their last id alone, as many steps as were taken. Where attention does not reach the answers, as with
    invented weights of which nearly all are 0, both are the same, and a kernel that returns nonsense would pass.
    """
    return not reach(reference, elsewhere) * BLIND_SHARE > bound


def reach(reference: Run, elsewhere: Run) -> float:
    """How far another past moves the answers, in nats: the largest difference over ``elsewhere``'s steps, 0 without any."""
    cut = [steps[: len(other)] for steps, other in zip(reference, elsewhere, strict=True)]
    return max((d.amount for d in differences(cut, elsewhere)), default=0.0)


def _problem(found: Difference, bound: float) -> str:
    where = f"prompt {found.prompt}, step {found.step}"
    if not found.amount <= bound:  # catches NaN as well
        least = "" if found.exact else "at least "
        return (
            f"{where}: log-probability of token {found.token} differs by {least}{found.amount:.4g}, bound {bound:.4g}"
        )
    if found.token != found.other_token and not found.gap < bound:
        return (
            f"{where}: token {found.other_token} instead of {found.token}, whose lead of {found.gap:.4g} is not below "
            f"the bound {bound:.4g}"
        )
    if not found.exact and bound == 0.0:
        return f"{where}: token {found.token} is not among the candidate's best"
    return ""
