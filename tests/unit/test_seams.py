"""The seams against the real wheels of SGLang, and what happens to a seam that has moved."""

from __future__ import annotations

import ast
import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dsv4_kernels.sglang_plugin.resolve import check_live, check_source, installed_source
from dsv4_kernels.sglang_plugin.seams import SEAMS, Seam, seams_for, supported
from dsv4_kernels.sglang_plugin.settings import ALL_PATCHES, KERNEL_PATCHES
from dsv4_kernels.sglang_plugin.static_check import parameters_in_source
from sglang_wheels import WheelSource, wheel

VERSIONS = ("0.5.15.post1", "0.5.23")


@pytest.fixture(scope="module", params=VERSIONS)
def release(request):
    return request.param, WheelSource(wheel(request.param))


@pytest.mark.timeout(330)
def test_every_seam_inside_sglang_is_in_the_real_wheel_with_the_expected_signature(release):
    version, read = release
    checked = [check_source(seam, read) for seam in seams_for(version) if seam.in_sglang]
    assert {status.seam.patch for status in checked} == set(ALL_PATCHES) - _outside(version)
    assert [f"{status.seam.target}: {status.problem}" for status in checked if not status.ok] == []


def _outside(version: str) -> set[str]:
    """Patches all of whose seams lie in another wheel than SGLang's."""
    inside = {seam.patch for seam in seams_for(version) if seam.in_sglang}
    return {seam.patch for seam in seams_for(version)} - inside


def test_a_seam_of_the_other_version_is_not_found_in_this_wheel(release):
    version, read = release
    moved = [s for s in SEAMS if s.in_sglang and s not in seams_for(version)]
    assert moved
    for seam in moved:
        assert not check_source(seam, read).ok, f"{seam.target} is in {version} too: its versions are too narrow"


def test_the_decode_of_the_newest_release_is_bound_when_its_backend_is_built():
    """A REPLACE hook reaches it only because the partial takes the module's attribute at run time, not at import."""
    source = WheelSource(wheel("0.5.23"))("sglang.srt.layers.attention.deepseek_v4_backend")
    bound = [
        method.name
        for cls in ast.parse(source).body
        if isinstance(cls, ast.ClassDef)
        for method in cls.body
        if isinstance(method, ast.FunctionDef)
        for call in ast.walk(method)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "functools.partial"
        if ast.unparse(call.args[0]) == "flash_mla_interface.flash_mla_with_kvcache"
    ]
    assert bound == ["__init__"]


BETWEEN = ("0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22")
BESIDE = (
    "0.5.15.post2",
    *(f"{version}.post1" for version in BETWEEN),
    "0.5.16rc1",
    "0.5.19.post2.dev3",
    "0.5.20+cu129",
)


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
@pytest.mark.parametrize("version", [*VERSIONS, *BETWEEN, *BESIDE])
def test_every_kernel_patch_has_a_seam_on_both_cards_in_every_version(version, arch):
    assert supported(version)
    hooks = [s for s in seams_for(version, KERNEL_PATCHES, arch) if s.use == "hook"]
    assert {s.patch for s in hooks} == set(KERNEL_PATCHES)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_two_seams_of_one_patch_share_a_target(version):
    for patch in set(ALL_PATCHES):
        targets = [s.target for s in seams_for(version, (patch,))]
        assert len(targets) == len(set(targets))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.15", False),
        ("0.5.15.post1", True),
        ("0.5.23", True),
        ("0.5.23+cu130", True),
        ("0.5.23.post1", False),
        ("0.5.24", False),
    ],
)
def test_only_the_versions_that_were_read_are_supported(version, expected):
    assert supported(version) is expected


@pytest.mark.parametrize("version", BESIDE)
def test_a_release_beside_another_has_that_ones_seams(version):
    base = "0.5.15.post1" if version.startswith("0.5.15") else version[:6]
    assert seams_for(version) == seams_for(base)


def _seam(**changes) -> Seam:
    return dataclasses.replace(seams_for("0.5.15.post1", ("hc_prenorm",))[0], **changes)


def test_the_module_of_a_method_ends_before_its_class():
    assert _seam().module == "sglang.srt.models.deepseek_v4"
    assert _seam().qualname == "DeepseekV4DecoderLayer.hc_pre"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (None, "does not exist"),
        ("class DeepseekV4DecoderLayer:\n    pass\n", "is not defined"),
        ("class DeepseekV4DecoderLayer:\n    def hc_pre(self, x, fn): ...\n", "found (self, x, fn)"),
    ],
)
def test_an_absent_or_different_seam_is_named_with_what_was_found(source, problem):
    assert problem in check_source(_seam(), lambda module: source).problem


def test_a_name_that_is_no_longer_imported_into_the_namespace_is_a_problem():
    seam = next(s for s in seams_for("0.5.23", ("topk",)) if s.defined_in)
    home = f"def {seam.qualname}({', '.join(seam.parameters)}): ..."
    sources = {seam.defined_in: home, seam.module: "from elsewhere import other\n"}
    assert "no longer imports" in check_source(seam, sources.get).problem


def test_definitions_under_if_and_try_are_found_and_those_inside_functions_are_not():
    source = "try:\n if True:\n  def f(a, *b, c, **d): ...\nexcept ImportError:\n pass\ndef g():\n def h(): ...\n"
    assert parameters_in_source(source, "f") == ("a", "*b", "c", "**d")
    assert parameters_in_source(source, "h") is None


def test_a_live_seam_is_compared_by_signature():
    here = _seam(target="dsv4_kernels.sglang_plugin.static_check.imports_name", parameters=("source", "name"))
    assert check_live(here).ok
    assert "found (source, name)" in check_live(dataclasses.replace(here, parameters=("source",))).problem
    assert "cannot be resolved" in check_live(dataclasses.replace(here, target="no_such_module_here.f")).problem


def test_installed_source_finds_a_module_without_importing_it():
    before = set(sys.modules)
    source = installed_source("sglang.srt.models.deepseek_v4")
    assert source is not None
    assert parameters_in_source(source, "DeepseekV4DecoderLayer.hc_pre") is not None
    assert not {name for name in set(sys.modules) - before if name.startswith("sglang")}
    assert installed_source("sglang.no.such.module") is None
    assert installed_source("no_such_package_at_all.x") is None
