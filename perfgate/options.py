"""What the user asked of a run, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfgate import turns
from perfgate.recipe import Recipe, RecipeError

if TYPE_CHECKING:
    from perfgate.revision import Commit


class OptionError(ValueError):
    """Options that do not fit together or the recipe; the message says what to give instead."""


@dataclass(frozen=True)
class Options:
    """The command-line options of ``pytest -m perf``; see ``pytest --help``, group perfgate."""

    recipe: Recipe
    recipe_file: Path
    concurrencies: tuple[int, ...]
    samples: int
    max_samples: int
    baselines: Path
    report: Path
    record: bool = False
    reason: str = ""
    against: Recipe | None = None
    against_commit: Commit | None = None
    """Where set, ``against`` is this same recipe, run with that commit's kernels."""
    starts: int | None = None
    """Server starts, of each side in an A/B, whose sides then take turns. None: one, or turns where no two servers fit."""
    server_url: str | None = None
    tokenizer: Path | None = None
    port: int | None = None
    profile: bool = False
    seed: int = 0
    command: tuple[str, ...] = ()

    @property
    def left_out(self) -> list[str]:
        """The recipe's points that this run was told not to measure."""
        return [f"C={c}" for c in self.recipe.concurrencies if c not in self.concurrencies]

    @property
    def own_starts(self) -> int:
        """Server starts of a run without another side."""
        return 1 if self.against is not None else self.starts or 1

    @property
    def rounds(self) -> turns.Rounds | None:
        """How an A/B alternates server starts, or None where its servers run side by side."""
        return None if self.against is None else turns.planned(self.recipe, self.against, self.starts, self.samples)


def concurrencies(text: str | None, recipe: Recipe) -> tuple[int, ...]:
    """The points asked for by ``--concurrency 1,16``; all of the recipe's by default. Raises OptionError."""
    if text is None:
        return tuple(recipe.concurrencies)
    chosen: list[int] = []
    for part in text.split(","):
        if not part.strip().isdigit():
            raise OptionError(
                f"--concurrency {text!r}: {part.strip()!r} is not a whole number; give for example 1,16,64"
            )
        value = int(part)
        if value not in recipe.concurrencies:
            known = ", ".join(map(str, recipe.concurrencies))
            raise OptionError(f"--concurrency {value} is not a point of recipe {recipe.name}, which has {known}")
        if value not in chosen:
            chosen.append(value)
    return tuple(chosen)


def check(options: Options) -> None:
    """Raises OptionError where options contradict each other."""
    if options.record and not options.reason.strip():
        raise OptionError("--record needs --reason TEXT: it stays in the baseline file for whoever wonders later")
    if options.reason and not options.record:
        raise OptionError("--reason is only for --record")
    if options.against is not None and (options.record or options.server_url):
        given = "--against" if options.against_commit is None else "--against-commit"
        raise OptionError(
            f"{given} compares two servers that this run starts; it goes with neither --record nor --server-url"
        )
    if options.against is not None:
        missing = [c for c in options.concurrencies if c not in options.against.concurrencies]
        if missing:
            raise OptionError(
                f"--against {options.against.name} lacks the points C={missing}; give --concurrency without them"
            )
    _check_starts(options)
    if options.samples < 2:
        raise OptionError(f"--samples {options.samples}: at least 2 are needed, since one sample has no spread")
    if options.port is not None and options.server_url:
        raise OptionError("--port is for a server that this run starts; --server-url names one that already runs")


def _check_starts(options: Options) -> None:
    if options.starts is not None and options.starts < 1:
        raise OptionError(f"--starts {options.starts}: at least one server start is needed")
    if options.starts is not None and options.server_url:
        raise OptionError("--starts is for a server that this run starts; --server-url names one that already runs")
    if options.profile and (rounds := options.rounds) is not None:
        raise OptionError(
            f"--profile looks at both servers while they are up, and here they take turns ({rounds.why}); take the profile "
            "in a run without --against"
        )


__all__ = ["OptionError", "Options", "RecipeError", "check", "concurrencies"]
