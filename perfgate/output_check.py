"""Are a patched server's answers still those of the stock one? The rule, on log-probabilities step by step (pure).

Both servers follow the same token ids: the reference's own greedy choice. At each step the candidate's log-probability
of the reference's token is compared, and its greedy choice. Kernels that sum in another order never agree bit for bit,
so the yardstick is how much the stock server differs from itself: run again, batched otherwise, and begun anew from time to
time, since a step that comes out of a prefill, or follows one, differs more than one that was decoded all the way.
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
    """One greedy step: the choices in order of log-probability, best first (at least two of them).

    ``asked``: tokens whose log-probabilities were asked for, whatever their rank. ``decoded`` is False for a step that came
    out of a prefill; ``restarted`` is True where earlier tokens of the answer went through one.
    """

    choices: tuple[tuple[int, float], ...]
    asked: tuple[tuple[int, float], ...] = ()
    decoded: bool = True
    restarted: bool = False

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
        """Log-probability of a token, or None where it is neither ranked nor asked for."""
        return next((value for choice, value in (*self.choices, *self.asked) if choice == token), None)


Run = Sequence[Sequence[Step]]
"""One server's steps, prompt by prompt."""


@dataclass(frozen=True)
class Difference:
    """One step of one prompt. ``amount`` is how far the log-probabilities of the same token lie apart.

    ``exact`` is False where the candidate's is not known: then the amount is a lower bound, and no step that can pass.
    """

    prompt: int
    step: int
    token: int
    other_token: int
    amount: float
    gap: float
    exact: bool = True
    restarted: bool = False


@dataclass(frozen=True)
class OutputVerdict:
    """``ok`` only where something was compared and every step is within its bound.

    ``noise`` and ``bound`` are those of steps decoded all the way, ``restarted_…`` of those with a prefill in between too.
    ``largest`` is the difference of the step nearest to its bound, or farthest beyond, and ``limit`` that bound;
    ``decoded`` counts the candidate's steps that came out of a decode.
    """

    ok: bool
    steps: int
    decoded: int
    noise: float
    bound: float
    restarted_noise: float
    restarted_bound: float
    largest: float
    limit: float
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
            found.append(Difference(prompt, index, step.token, second.token, amount, step.gap, exact, second.restarted))
    return found


def judge(reference: Run, yardsticks: Sequence[Run], candidate: Run, floor: float = 0.0) -> OutputVerdict:
    """Hold ``candidate`` to ALLOWED_FACTOR times what ``yardsticks``, the reference server's further runs, show, or ``floor``.

    The candidate's restarted steps are held to what all of those runs' steps show, the others to those that were never
    restarted. A greedy token may differ only where the reference's own two best are closer than the bound. A reference that
    agrees with itself exactly gives no yardstick: then only equal output or a ``floor`` above 0 (in nats) can pass.
    Raises ValueError on runs of different shapes.
    """
    own = [d for run in yardsticks for d in differences(reference, run)]
    found = differences(reference, candidate)
    noise, all_noise = _largest([d for d in own if not d.restarted]), _largest(own)
    bound, wider = max(ALLOWED_FACTOR * noise, floor), max(ALLOWED_FACTOR * all_noise, floor)
    deterministic = all_noise == 0.0 and all(d.token == d.other_token for d in own)
    limits = [wider if d.restarted else bound for d in found]
    problems = [_problem(d, limit) for d, limit in zip(found, limits, strict=True)]
    largest, limit = max(((d.amount, n) for d, n in zip(found, limits, strict=True)), key=_share, default=(0.0, bound))
    told = tuple(p for p in problems if p)
    if not found:
        told = ("nothing was compared: the reference run has no steps",)
    elif not math.isfinite(all_noise):
        told = (f"the reference differs from itself by {all_noise}: it is no yardstick", *told)
    changed = sum(d.token != d.other_token for d in found)
    decoded = sum(step.decoded for steps in candidate for step in steps)
    return OutputVerdict(
        not told, len(found), decoded, noise, bound, all_noise, wider, largest, limit, changed, deterministic, told
    )


def _share(held: tuple[float, float]) -> tuple[float, float]:
    """Sorts differences by how much of their bound they take, NaN last, and equal ones by size."""
    amount, bound = held
    if math.isnan(amount):
        return math.inf, math.inf
    return (amount / bound if bound else math.inf if amount else 0.0), amount


def _largest(found: Sequence[Difference]) -> float:
    """The largest amount, NaN where any is, 0 without any."""
    amounts = [d.amount for d in found]
    return math.nan if any(math.isnan(a) for a in amounts) else max(amounts, default=0.0)


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
    if not found.exact:
        return f"{where}: the candidate's log-probability of token {found.token} is not known, bound {bound:.4g}"
    if not found.amount <= bound:  # catches NaN as well
        return f"{where}: log-probability of token {found.token} differs by {found.amount:.4g}, bound {bound:.4g}"
    if found.token != found.other_token and not found.gap < bound:
        return (
            f"{where}: token {found.other_token} instead of {found.token}, whose lead of {found.gap:.4g} is not below "
            f"the bound {bound:.4g}"
        )
    return ""
