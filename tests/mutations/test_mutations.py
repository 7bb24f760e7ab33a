"""Every fault is noticed, an unchanged copy passes, and the list stays in step with the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import FAULTS, KERNELS, REFERENCE, Fault
from harness import ROOT, SEEDS, apply, copy_tree, hunt, run

KILLERS = sorted({killer for fault in FAULTS for killer in fault.killers})


def marks(slow: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.mutations] if slow else []


def noticed(fault: Fault, tree: Path, record_property) -> None:
    kill = hunt(fault, copy_tree(tree))
    record_property("fault", fault.name)
    record_property("killed", kill is not None)
    record_property("killer", kill.killer if kill else "nothing")
    record_property("seeds", kill.seed + 1 if kill else len(SEEDS))
    record_property("seconds", f"{kill.seconds:.0f}" if kill else "-")
    assert kill, f"{fault.name}: {', '.join(fault.killers)} passed with {len(SEEDS)} seeds each"


@pytest.mark.mutations
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_noticed_by_a_property(fault: Fault, tmp_path: Path, record_property) -> None:
    noticed(fault, tmp_path, record_property)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.quick], ids=lambda fault: fault.name)
def test_a_few_faults_are_noticed_in_every_run(fault: Fault, tmp_path: Path) -> None:
    assert hunt(fault, copy_tree(tmp_path)), f"{fault.name} went unnoticed"


@pytest.mark.mutations
@pytest.mark.parametrize("killer", KILLERS)
def test_an_unchanged_copy_passes_what_kills_the_faults(killer: str, tmp_path: Path) -> None:
    failed, output = run(copy_tree(tmp_path), killer, seed=0)
    assert not failed, f"{killer} fails on the code as it is, so it proves nothing:\n{output}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_still_applies(fault: Fault, tmp_path: Path) -> None:
    copy = tmp_path / fault.file
    copy.parent.mkdir(parents=True)
    copy.write_text((ROOT / fault.file).read_text())
    apply(fault, tmp_path)
    compile(copy.read_text(), fault.file, "exec")


def test_the_list_is_as_large_as_promised() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 15
    in_kernels = [fault for fault in FAULTS if fault.file.startswith(KERNELS) and not fault.file.startswith(REFERENCE)]
    assert len(in_kernels) >= 12
