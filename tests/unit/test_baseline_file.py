"""Reading baseline files: what is there comes back whole, and every fault is one error that names file and cure."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import record_first

from perfgate.baseline import BaselineError, BaselineMissing, Bounds, load, smoke
from perfgate.baseline.file import parse


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "cpu-tiny" / "xeon.json"
    record_first(path)
    return path


def test_a_point_comes_back_with_samples_starts_and_provenance(path):
    file = load(path)
    point = file.point(16)
    assert file.concurrencies == (16,)
    assert point.metrics["throughput"].samples == (1000, 1010, 990)
    assert point.metrics["throughput"].starts == (3, 3, 3)
    assert point.metrics["throughput"].median == 1000
    assert point.metrics["step_time"].median == pytest.approx(12.8)
    assert (point.commit, point.reason, point.recorded_at) == ("abc", "first", "2026-11-29")
    assert point.fingerprint == {"cpu": "xeon"}
    assert file.stored_point(16).provenance.server_arguments == {"device": "cpu"}
    assert file.stored_point(16).provenance.sglang_version == "0.5.15.post1"


def test_a_point_that_was_never_recorded_is_none(path):
    assert load(path).point(64) is None


def test_the_recipes_bounds_go_into_the_point(path):
    bounds = Bounds(relative=0.01, absolute={"throughput": 5.0})
    assert load(path).point(16, bounds).bounds == bounds


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(BaselineMissing, match=r"nowhere\.json: no such baseline; .*--record --reason"):
        load(tmp_path / "nowhere.json")


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(BaselineError, match="cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_cut_off_anywhere_names_line_and_cure(path, share):
    data = path.read_bytes().rstrip()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BaselineError, match=r"xeon\.json: line \d+, column \d+: .*git checkout"):
        load(path)


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0])
def test_another_schema_version_is_refused_by_its_number(path, version):
    content = json.loads(path.read_text()) | {"schema_version": version}
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match=r"schema_version is .* and this perfgate reads 1"):
        load(path)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("points", "16", "metrics", "throughput", "median"), "fast"),
        (("points", "16", "metrics", "throughput", "median"), -3),
        (("points", "16", "metrics", "throughput", "samples"), []),
        (("points", "16", "metrics", "throughput", "n"), 2),
        (("points", "16", "provenance", "reason"), 7),
        (("points", "16", "metrics", "throughput", "samples", 0, "server_start"), 1.5),
        (("recipe",), None),
        (("points",), []),
        (("surprise",), 1),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_key(path, keys, value):
    content = json.loads(path.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError) as error:
        load(path)
    assert str(keys[0]) in str(error.value)
    assert "xeon.json" in str(error.value)


def test_a_median_moved_by_hand_is_noticed(path):
    content = json.loads(path.read_text())
    content["points"]["16"]["metrics"]["throughput"]["median"] = 900
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match="median is 900 but the samples give 1000"):
        load(path)


@pytest.mark.parametrize("key", ["c16", "016", "0", "-1", "१६"])
def test_a_key_that_is_no_concurrency_is_refused(path, key):
    content = json.loads(path.read_text())
    content["points"][key] = content["points"].pop("16")
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match="is not a concurrency"):
        load(path)


def test_a_key_that_stands_twice_is_refused(path):
    path.write_text(path.read_text().replace('"recipe"', '"recipe":"x","recipe"', 1))
    with pytest.raises(BaselineError, match="stands twice"):
        load(path)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "1e999"])
def test_figures_that_are_not_finite_are_refused(path, literal):
    path.write_text(path.read_text().replace('"spread":', f'"spread": {literal}, "was":', 1))
    with pytest.raises(BaselineError):
        load(path)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_arbitrary_bytes_are_an_error_and_never_a_baseline(tmp_path_factory, raw):
    with pytest.raises(BaselineError):
        parse(raw, tmp_path_factory.getbasetemp() / "x.json")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_real_file_with_bytes_changed_is_read_or_refused_but_never_crashes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    if not path.exists():
        record_first(path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    # Any other exception than BaselineError fails the test.
    with contextlib.suppress(BaselineError):
        assert parse(bytes(raw), path).schema_version == 1


def test_a_smoke_floor_needs_a_bound_that_can_be_kept():
    assert smoke(16, throughput_floor=100).is_smoke
    with pytest.raises(ValueError, match="needs recorded metrics or a smoke floor"):
        smoke(16)
    with pytest.raises(ValueError, match="finite and above 0"):
        smoke(16, throughput_floor=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relative": 0.02}, "at most 0.015"),
        ({"relative": 0}, "above 0"),
        ({"least": 0.02}, "least bound"),
        ({"between_start": -0.1}, "between-start"),
        ({"absolute": {"latency": 1}}, "latency"),
        ({"absolute": {"throughput": float("nan")}}, "finite"),
    ],
)
def test_bounds_that_would_let_anything_through_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Bounds(**options)
