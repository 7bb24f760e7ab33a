"""From facts to one screen: what this machine can run, what is missing, and the command that mends it. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from perfgate.doctor.facts import Facts, RecipeFact

DISK_GIB = 10.0
"""A run's logs, a generated model and its compiled kernels stay well below this."""

NAMED = 5
"""More recipes than this that stop at the same reason are counted and no longer named."""

HARNESS = (
    "filelock",
    "hypothesis",
    "jinja2",
    "numpy",
    "packaging",
    "psutil",
    "pydantic",
    "pytest",
    "pytest-benchmark",
    "pytest-timeout",
    "pytest-xdist",
    "ruptures",
    "scipy",
)
"""What the suite itself needs (pyproject.toml); SGLang and torch are asked for apart, since a machine may bring its own."""


@dataclass(frozen=True)
class Problem:
    """Something that stands between this machine and a run, and the command or step that mends it."""

    what: str
    mend: str


def blockers(facts: Facts, recipe: RecipeFact) -> list[Problem]:
    """Why this recipe cannot run here; none where it can."""
    if recipe.error:
        return [
            Problem(f"recipes/{recipe.name}.toml: {recipe.error}", "correct the file; docs/recipes.md has its keys")
        ]
    found = _software(facts)
    if facts.lock_problem:
        found.append(Problem(facts.lock_problem, "or give all runs of this host another folder: PERFGATE_LOCKS=DIR"))
    if recipe.device == "cuda":
        found += _cards(facts, recipe)
        if recipe.patches and facts.cards:
            found += _seams(facts)
    if recipe.model_path and not recipe.model_there:
        mend = "put the checkpoint there, or point [model] path of the recipe at it"
        found.append(Problem(f"no model at {recipe.model_path}", mend))
    return found


def busy(facts: Facts) -> list[Problem]:
    """Why a measurement taken now would not be believed."""
    found = []
    for i, card in enumerate(facts.cards):
        found += [
            Problem(f"GPU {i} is in use by {p}", f"wait for it, or end it: kill {p.split()[0]}") for p in card.processes
        ]
        if card.throttled:
            found.append(Problem(f"GPU {i} is throttled: {card.throttled}", "nvidia-smi -q -d PERFORMANCE says why"))
    if facts.lock_holder:
        found.append(Problem(f"a run is measuring on this host ({facts.lock_holder})", "wait until it ends"))
    if facts.disk_free_gib < DISK_GIB:
        found.append(
            Problem(
                f"{facts.disk_free_gib:.1f} GiB of disk are free, {DISK_GIB:.0f} are needed", "df -h . ; then free some"
            )
        )
    return found


def screen(facts: Facts, recipe: str | None = None) -> list[str]:
    """The lines to print; with ``recipe`` only that one is looked into."""
    chosen = [r for r in facts.recipes if recipe in (None, r.name)]
    against = {r.name: blockers(facts, r) for r in chosen}
    lines = [*_machine(facts), *_plugin(facts), "", "recipes"]
    lines += [f"  ✓ {r.name}: {_baseline(facts, r)}" for r in chosen if not against[r.name]]
    # By their first reason, so that a machine without a GPU says so once and not once a recipe.
    reasons: dict[str, list[str]] = {}
    for name, found in against.items():
        if found:
            reasons.setdefault(found[0].what, []).append(name)
    lines += [line for what, names in reasons.items() for line in _wrapped(f"  ✗ {_names(names)}: {what}")]
    problems = list(dict.fromkeys([*(p for found in against.values() for p in found), *busy(facts)]))
    if not chosen:
        known = ", ".join(r.name for r in facts.recipes) or "none"
        problems.insert(0, Problem(f"no recipe {recipe or 'in recipes/'}", f"choose one of: {known}"))
    lines += ["", "missing" if problems else "nothing is missing"]
    for problem in problems:
        lines += [*_wrapped(f"  ✗ {problem.what}"), *_wrapped(f"    → {problem.mend}")]
    return lines


def _names(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:NAMED])} and {more} more"


def ready(facts: Facts, recipe: str | None, strict: bool) -> bool:
    """Whether the recipe (any recipe, where none is named) can run; ``strict`` asks for an idle machine too."""
    chosen = [r for r in facts.recipes if recipe in (None, r.name)]
    return any(not blockers(facts, r) for r in chosen) and not (strict and busy(facts))


def _software(facts: Facts) -> list[Problem]:
    found = []
    if facts.python < (3, 11, 0):
        have = ".".join(map(str, facts.python))
        found.append(Problem(f"Python {have}, at least 3.11 is needed", "apt-get install python3.11, or use pyenv"))
    lacking = [name for name in HARNESS if not facts.packages.get(name)]
    if lacking:
        found.append(
            Problem(
                f"not installed: {', '.join(lacking)}",
                "tox -e doctor, or tox -e gpu-doctor on a GPU host; each installs them first",
            )
        )
    for name in ("torch", "sglang"):
        if not facts.packages.get(name):
            found.append(Problem(f"{name} is not installed", "tox -e doctor on a CPU; on a GPU host docs/runner.md"))
    return found


def _cards(facts: Facts, recipe: RecipeFact) -> list[Problem]:
    if not facts.cards:
        return [
            Problem(
                f"no GPU: {facts.card_error or 'nvidia-smi lists none'}", "run it on a host with one; docs/runner.md"
            )
        ]
    if len(facts.cards) < recipe.gpus:
        return [
            Problem(
                f"{recipe.gpus} GPUs are needed, {len(facts.cards)} are here", "use a recipe with a smaller tp_size"
            )
        ]
    return []


def _seams(facts: Facts) -> list[Problem]:
    if facts.seam_error or not facts.seams:
        why = facts.seam_error or "no seam was found"
        return [Problem(f"the plug-in cannot be checked: {why}", "python -m pip install --no-deps -e .")]
    mend = "install what is named, or an SGLang version that docs/recipes.md lists for the plug-in"
    return [Problem(f"seam {s.name}: {s.problem}", mend) for s in facts.seams if s.problem]


def _machine(facts: Facts) -> list[str]:
    room = f"{facts.memory_gib:.0f} GiB memory, {facts.disk_free_gib:.0f} GiB disk free"
    lines = [f"machine   {facts.cpus} CPUs, {facts.cpu}; {room}"]
    for i, card in enumerate(facts.cards):
        power = f", power cap {card.power_w:.0f} W" if card.power_w else ""
        lines.append(f"GPU {i}     {card.name}, {card.memory_gib:.0f} GiB{power}, driver {card.driver}")
    if not facts.cards:
        lines.append(f"GPU       none ({facts.card_error or 'nvidia-smi lists none'})")
    versions = [f"{name} {facts.packages.get(name) or '(not installed)'}" for name in ("sglang", "torch", "triton")]
    lines.append(f"software  Python {'.'.join(map(str, facts.python))}, " + ", ".join(versions))
    if facts.moved_caches:
        said = f"a server's are where its recipe's jit_caches say; it does not follow {', '.join(facts.moved_caches)}"
        lines += _wrapped(f"caches    {said}")
    return lines


def _plugin(facts: Facts) -> list[str]:
    if facts.seam_error:
        return [f"plug-in   cannot be checked: {facts.seam_error}"]
    broken = [s for s in facts.seams if s.problem]
    line = f"plug-in   {len(facts.seams) - len(broken)} of {len(facts.seams)} seams are as expected"
    # Without a card nothing calls the GPU's packages, so that they are not installed is no fault.
    absent = [s for s in broken if not facts.cards and "ModuleNotFoundError" in s.problem]
    if absent:
        line += f"; the packages of {len(absent)} are a GPU host's"
    return [line, *(f"          ✗ {s.name}: {s.problem}" for s in broken if s not in absent)]


def _baseline(facts: Facts, recipe: RecipeFact) -> str:
    if facts.hardware is None:
        return "runs; its baseline cannot be looked up yet"
    name = f"baselines/{recipe.name}/{facts.hardware}.json"
    if f"{recipe.name}/{facts.hardware}.json" in facts.baselines:
        return f"runs, against {name}"
    return "runs, no baseline of this hardware: record one with --record --reason TEXT"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 118, subsequent_indent="      ", break_on_hyphens=False)
