"""Record how kernels are launched instead of launching them: grid, constants, scalars and pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from dsv4_kernels import card as cards


@dataclass(frozen=True)
class Launch:
    kernel: str
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    aligned: frozenset[str] = frozenset()
    """Arguments that Triton compiles for as multiples of 16: such integers, and pointers, which a test's memory all are."""


def aligned_names(kernel: Any, arguments: tuple[Any, ...]) -> frozenset[str]:
    """Which arguments a launch of ``kernel`` is specialised for as multiples of 16. An interpreted kernel keeps its options."""
    kept = getattr(kernel, "do_not_specialize", None) or getattr(kernel, "kwargs", {}).get("do_not_specialize") or ()
    return frozenset(
        name
        for name, value in zip(kernel.arg_names, arguments, strict=False)
        if isinstance(value, torch.Tensor) or (type(value) is int and value % 16 == 0 and name not in kept)
    )


class Recorder:
    """Stands in for a Triton kernel: `kernel[grid](...)` notes the launch and computes nothing."""

    def __init__(self, kernel: Any, log: list[Launch]) -> None:
        self.kernel, self.log = kernel, log
        self.arg_names = kernel.arg_names

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **keywords: Any) -> None:
            plain = tuple(
                (tuple(a.shape), a.stride(), a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments
            )
            aligned = aligned_names(self.kernel, arguments)
            self.log.append(Launch(self.kernel.__name__, tuple(grid), plain, tuple(sorted(keywords.items())), aligned))

        return launch


@contextmanager
def recorded(module: Any, card: cards.Card | None = None) -> Iterator[list[Launch]]:
    """Inside, the kernels that `module` launches are recorded; with `card`, as if its tensors lay on that card."""
    log: list[Launch] = []
    kernels = {name: value for name, value in vars(module).items() if hasattr(value, "arg_names")}
    with mock.patch.multiple(module, **{name: Recorder(kernel, log) for name, kernel in kernels.items()}):
        if card is None or not hasattr(module, "card_for"):
            yield log
            return
        with (
            mock.patch.object(cards, "INTERPRETING", False),
            mock.patch.object(module, "card_for", return_value=(card, card.sms)),
        ):
            yield log
