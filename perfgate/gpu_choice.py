"""Which of a host's GPUs a server uses, and a view of NVML that shows those alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfgate.gpu import GpuError
from perfgate.recipe import Recipe


def wanted(recipe: Recipe) -> int:
    """How many GPUs the recipe's arguments ask for: tensor times pipeline parallel, times data parallel of its own."""
    args = recipe.server.args
    tp = int(args.get("tp_size") or args.get("tensor_parallel_size") or args.get("tp") or 1)  # type: ignore[arg-type]
    pp = int(args.get("pp_size") or args.get("pipeline_parallel_size") or 1)  # type: ignore[arg-type]
    dp = int(args.get("dp_size") or args.get("data_parallel_size") or 1)  # type: ignore[arg-type]
    return tp * pp * (1 if args.get("enable_dp_attention") else dp)


def chosen(nvml: Any, count: int, environment: Mapping[str, str]) -> tuple[int, ...]:
    """NVML's numbers of the first ``count`` GPUs that CUDA would take. Raises GpuError where there are fewer."""
    present = nvml.nvmlDeviceGetCount()
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        numbers = list(range(present))
    else:
        numbers = [_number(nvml, entry.strip(), present) for entry in visible.split(",") if entry.strip()]
    if len(numbers) < count:
        seen = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        raise GpuError(f"the recipe needs {count} GPU(s) and this host shows {len(numbers)}{seen}")
    return tuple(numbers[:count])


def _number(nvml: Any, entry: str, present: int) -> int:
    if entry.isdigit() and int(entry) < present:
        return int(entry)
    for number in range(present):
        if entry.startswith("GPU-") and uuid(nvml, nvml.nvmlDeviceGetHandleByIndex(number)).startswith(entry):
            return number
    raise GpuError(f"CUDA_VISIBLE_DEVICES names {entry!r}, which is none of this host's {present} GPUs")


def uuid(nvml: Any, device: Any) -> str:
    """A GPU's own name, the same in every container that sees it."""
    value = nvml.nvmlDeviceGetUUID(device)
    return value.decode() if isinstance(value, bytes) else str(value)


class Only:
    """NVML with some of its GPUs: counts and indexes those, and passes everything else through."""

    def __init__(self, nvml: Any, numbers: Sequence[int]) -> None:
        self._nvml, self._numbers = nvml, tuple(numbers)

    def nvmlDeviceGetCount(self) -> int:
        return len(self._numbers)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._nvml.nvmlDeviceGetHandleByIndex(self._numbers[index])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvml, name)
