"""What Triton's autotuners chose in each server start, and that starts differ by it (pure).

An autotuner times a kernel's configurations at its first call and keeps the fastest of that one timing, in every process anew:
two starts of the same code may serve with different kernels. SGLang's sparse decode for sm_120
(srt/layers/attention/flash_mla_sm120_triton.py, 0.5.15) is chosen so among three tilings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# As TRITON_PRINT_AUTOTUNING=1 makes triton/runtime/autotuner.py print it: on four lines, on one before triton 3.2.
_CHOICE = re.compile(
    r"Triton autotuning for function (?P<kernel>\w+)(?:,\s*with key as (?P<key>[^\n]*),)?\s*"
    r"finished after [\d.]+s[,;]\s*best config selected: (?P<config>[^\n;]*);"
)
Choices = dict[str, frozenset[str]]
"""By kernel and tuning key: the configurations that a start's processes chose."""


def choices(log: str) -> Choices:
    """What a server's log says of its autotuners; the ranks of one start may have chosen differently."""
    found: dict[str, set[str]] = {}
    for seen in _CHOICE.finditer(log):
        found.setdefault(f"{seen['kernel']}{seen['key'] or ''}", set()).add(seen["config"].strip())
    return {name: frozenset(configs) for name, configs in found.items()}


def notes(starts: Mapping[str, Choices]) -> list[str]:
    """A note for each kernel that did not run in one configuration everywhere; ``starts`` by their names, in order."""
    kernels = dict.fromkeys(kernel for chosen in starts.values() for kernel in chosen)
    told = []
    for kernel in kernels:
        by_config: dict[str, list[str]] = {}
        for start, chosen in starts.items():
            for config in sorted(chosen.get(kernel, ())):
                by_config.setdefault(config, []).append(start)
        if len(by_config) < 2:
            continue
        shares = "; ".join(f"{config} in {', '.join(names)}" for config, names in by_config.items())
        told.append(
            f"Triton's autotuner did not choose the same for {kernel} everywhere: {shares}. Steps differ by that, whatever "
            'the code; TRITON_CACHE_AUTOTUNING = "1" in [server.env] keeps the first choice in the compile cache'
        )
    return told
