"""A recipe: one thing measured, read from ``recipes/NAME.toml`` and checked before anything is started."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from perfgate import jit_caches
from perfgate.workload.plan import Plan

Scalar = str | int | float | bool


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names the file, the key or line, and what to do."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Model(_Table):
    """Where the model comes from: a generator of this package with its options, or a directory."""

    generator: str | None = None
    path: Path | None = None
    options: dict[str, Scalar] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        if (self.generator is None) == (self.path is None):
            raise ValueError("give exactly one of 'generator' and 'path'")
        return self


class Server(_Table):
    """How the server is started. ``args`` are SGLang's flags with underscores; true is a bare flag, a list repeats values."""

    sglang: str | None = Field(default=None, description="the SGLang version that this recipe is for; None for any")
    module: str = "sglang.launch_server"
    args: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    jit_caches: list[str] = Field(
        default_factory=list,
        description="directories that keep compiled kernels across starts, where not the usual ones",
    )

    @field_validator("args")
    @classmethod
    def _flags(cls, args: dict[str, Any]) -> dict[str, Any]:
        for name in args:
            if not name.replace("_", "").isalnum() or name.startswith("_"):
                raise ValueError(f"{name!r} is not a server flag; write it with underscores and no dashes")
            if name in _OURS:
                raise ValueError(f"{name!r} is set by the harness; {_OURS[name]}")
        return args

    @field_validator("env")
    @classmethod
    def _caches(cls, env: dict[str, str]) -> dict[str, str]:
        if moved := [name for name in jit_caches.VARIABLES if name in env]:
            raise ValueError(f"{', '.join(moved)}: set by the harness; list the folder in jit_caches")
        return env


_OURS = {
    "model_path": "use [model]",
    "served_model_name": "each start gets a name that no other server has",
    "host": "the server listens on the loopback address",
    "port": "use [server] args without it, and --port for a fixed one",
}


class Patch(_Table):
    """Which of this project's kernels must be in the server, and must be seen to run."""

    patches: list[str] = Field(default_factory=list)
    fallback: list[str] = Field(default_factory=list)
    required: bool = True


class Floor(_Table):
    """The least that passes on any machine: tokens/s from below, step time in ms from above."""

    throughput: float = Field(gt=0)
    step_ms: float | None = Field(default=None, gt=0)


class Target(_Table):
    """What is aimed at. Shown, never gates."""

    throughput: float | None = Field(default=None, gt=0)
    step_ms: float | None = Field(default=None, gt=0)


class Noise(_Table):
    """Differences too small to mean anything on a noisy machine, in each metric's own unit."""

    throughput: float = Field(default=0.0, ge=0)
    step_ms: float = Field(default=0.0, ge=0)


class Point(_Table):
    """One concurrency. ``num_prompts`` grows by itself where a sample would last less than ``min_seconds``."""

    concurrency: int = Field(ge=1)
    num_prompts: int | None = Field(default=None, ge=1)
    smoke: Floor | None = None
    noise: Noise = Noise()
    between_start_rel_sd: float | None = Field(
        default=None, ge=0, lt=1, description="this point's own, instead of that in [bounds]"
    )
    target: Target | None = None


class Workload(_Table):
    """What each sample asks; see docs/recipes.md."""

    input_len: int = Field(ge=1)
    output_len: int = Field(ge=2, description="at least 2: one token has no step time")
    prompts_per_request: int = Field(default=5, ge=5)
    min_seconds: float = Field(default=4.0, ge=1.0)
    samples: int = Field(default=3, ge=2)
    max_samples: int = Field(default=6, ge=2)
    max_retakes: int = Field(default=2, ge=0)
    client_warmup_requests: int = Field(default=1, ge=0)
    stall_seconds: float = Field(
        default=1.0,
        gt=0,
        description="a pause that makes a sample INVALID, where it is 5 % of the sample's time or more",
    )
    little_share: float = Field(default=0.4, gt=0, lt=1)
    max_cached_share: float = Field(default=0.02, ge=0, le=1)

    @model_validator(mode="after")
    def _order(self) -> Workload:
        if self.max_samples < self.samples:
            raise ValueError(f"max_samples ({self.max_samples}) is below samples ({self.samples})")
        return self


class Warmup(_Table):
    """What is sent before the first sample, besides one discarded sample a point."""

    prompt_lengths: list[int] = Field(default_factory=list)
    burst_sizes: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    stall_seconds: float = Field(default=1.0, gt=0)
    max_rounds: int = Field(default=3, ge=1)


class Output(_Table):
    """The output check of an A/B run: ``steps`` greedy tokens after one random prompt of each length, by both servers."""

    steps: int = Field(
        default=64, ge=2, description="the first comes out of the prompt's prefill, the others are decoded"
    )
    prompt_lengths: list[int] = Field(
        default=[5, 64, 129, 512], min_length=2, description="two or more, so that answers can be told apart"
    )
    floor: float = Field(
        default=0.0, ge=0, description="least bound, in nats, for a server that never differs from itself"
    )

    @field_validator("prompt_lengths")
    @classmethod
    def _lengths(cls, lengths: list[int]) -> list[int]:
        if any(n < 1 for n in lengths):
            raise ValueError("a prompt has at least one token")
        return lengths


class Context(_Table):
    """Step time at C=1 with growing prompts, after the points: decode time per 1,000 tokens of real context."""

    lengths: list[int] = Field(min_length=3, description="prompt tokens")
    output_len: int = Field(default=64, ge=2)
    prompts: int = Field(
        default=5,
        ge=2,
        description="prompts a sample, or as many as take workload.min_seconds; its step time is their median",
    )
    repeats: int = Field(default=3, ge=2, description="samples a length")
    knee: int = Field(default=2048, ge=1, description="tokens at which the slope may change")
    us_per_1000_tokens: float | None = Field(default=None, gt=0, description="the most that passes, on either side")

    @model_validator(mode="after")
    def _sides(self) -> Context:
        if len(set(self.lengths)) != len(self.lengths) or min(self.lengths) < 1:
            raise ValueError(f"lengths must be different and above 0, got {self.lengths}")
        # The context of a step is the prompt and what is answered so far: on average half of the output.
        if sum(n + self.output_len / 2 <= self.knee for n in self.lengths) < 2:
            raise ValueError(f"two lengths with their output must lie below the knee of {self.knee} tokens")
        return self


class Limits(_Table):
    """Deadlines in seconds, and bounds on the start itself."""

    start_seconds: float = Field(default=120, gt=0)
    sample_seconds: float = Field(default=120, gt=0)
    stop_seconds: float = Field(default=20, gt=0)
    hang_seconds: float = Field(
        default=330, ge=0, description="how long a hung server is kept for its watchdog to say why"
    )
    max_restarts: int = Field(default=1, ge=0, description="fresh servers after one died in the middle of a run")
    max_startup_seconds: float | None = Field(default=None, gt=0, description="fails the start-up check when exceeded")
    min_kv_tokens: int | None = Field(default=None, ge=1)
    max_graph_gib: float | None = Field(default=None, gt=0, description="fails the graph memory check when exceeded")


class Bounds(_Table):
    """How much worse counts: a drop must exceed the relative bound, the point's own noise and the errors of the figures."""

    relative: float = Field(default=0.015, gt=0, le=0.015)
    between_start_rel_sd: float | None = Field(
        default=None, ge=0, lt=1, description="spread between server starts, where it was measured"
    )
    max_a_ms: float | None = None
    max_b_ms: float | None = None
    max_e_ms: float | None = None
    experts: tuple[int, int] | None = Field(default=None, description="routed experts and how many each token takes")
    min_speedup: float | None = None


class Recipe(_Table):
    """One thing measured."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    description: str
    device: Literal["cpu", "cuda"]
    model: Model
    server: Server
    workload: Workload
    points: list[Point] = Field(min_length=1)
    patch: Patch = Patch()
    warmup: Warmup = Warmup()
    output: Output | None = Field(default=None, description="hold an A/B's new answers to the old ones")
    context: Context | None = Field(default=None, description="what a step costs per 1,000 tokens of context")
    limits: Limits = Limits()
    bounds: Bounds = Bounds()
    graphs_reason: str | None = Field(
        default=None, description="why this server has no decode graphs, where it has none"
    )

    @model_validator(mode="after")
    def _points(self) -> Recipe:
        seen = [p.concurrency for p in self.points]
        if len(set(seen)) != len(seen):
            raise ValueError(f"points: a concurrency is given twice: {seen}")
        return self

    @model_validator(mode="after")
    def _bounds_that_can_be_tested(self) -> Recipe:
        own = self.bounds
        if own.min_speedup is not None and (1 not in self.concurrencies or len(self.points) < 2):
            raise ValueError("bounds.min_speedup is from C=1 to the largest C: give both points")
        limits = {"max_a_ms": own.max_a_ms, "max_b_ms": own.max_b_ms, "max_e_ms": own.max_e_ms}
        given = [name for name, most in limits.items() if most is not None]
        if not given:
            return self
        from perfgate.scaling.law import POINTS_TO_FIT  # scipy, which only such a recipe needs this early

        wanted = POINTS_TO_FIT[own.experts is not None]
        if len(self.points) < wanted:
            raise ValueError(
                f"bounds.{given[0]} can be tested from {wanted} points on, and there are {len(self.points)}"
            )
        if own.max_e_ms is not None and own.experts is None:
            raise ValueError("bounds.max_e_ms needs bounds.experts: routed experts, and how many each token takes")
        return self

    @property
    def concurrencies(self) -> list[int]:
        return [p.concurrency for p in self.points]

    @property
    def takes_all_memory(self) -> bool:
        """Whether its server makes its KV pool of all that the card has left, so that no second server fits beside it."""
        return self.device == "cuda" and "max_total_tokens" not in self.server.args

    @property
    def watched_caches(self) -> list[str]:
        """The folders to watch for compiled files: on a GPU those of every compiler, wherever the recipe puts them."""
        listed = self.server.jit_caches
        return jit_caches.watched(listed) if self.device == "cuda" else listed

    def point(self, concurrency: int) -> Point:
        return next(p for p in self.points if p.concurrency == concurrency)

    def between_starts(self, concurrency: int) -> float | None:
        """Relative standard deviation between server starts that was measured for a point; None where none is stated."""
        own = self.point(concurrency).between_start_rel_sd
        return own if own is not None else self.bounds.between_start_rel_sd

    def plan(self, concurrency: int) -> Plan:
        """The sample asked for at a point, before any lengthening to ``min_seconds``."""
        work = self.workload
        least = work.prompts_per_request * concurrency
        prompts = max(least, self.point(concurrency).num_prompts or 0)
        return Plan(concurrency, prompts, work.input_len, work.output_len, work.client_warmup_requests)


def find(name: str, folder: Path) -> Path:
    """The file of a recipe given by name (looked up in ``folder``) or by path. Raises RecipeError listing what exists."""
    path = Path(name)
    if path.suffix == ".toml" or path.parent != Path("."):
        if path.is_file():
            return path
        raise RecipeError(f"no recipe file {path}; give a file that exists, or a name from {folder}: {_names(folder)}")
    path = folder / f"{name}.toml"
    if path.is_file():
        return path
    raise RecipeError(f"unknown recipe {name!r}; {folder} has: {_names(folder)}")


def load(path: Path) -> Recipe:
    """Read and check one recipe. Raises RecipeError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: not valid TOML: {error}; correct that line") from None
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError(_explain(path, error)) from None


def _names(folder: Path) -> str:
    return ", ".join(sorted(p.stem for p in folder.glob("*.toml"))) or "(none)"


def _explain(path: Path, error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"]) or "(recipe)"
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown key '{key}'; remove it, or see docs/recipes.md for the keys there are")
        else:
            lines.append(f"key '{key}': {item['msg'].removeprefix('Value error, ')} (got {_short(item.get('input'))})")
    return f"{path}: " + "; ".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
