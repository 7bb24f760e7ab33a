"""The result file is whole or absent, and says what was measured and nothing else."""

import json
import os
from pathlib import Path

import pytest

from perfgate.report import ResultError, jsonfile, save
from perfgate.result import Outcome, RunResult

CASES = Path(__file__).parents[1] / "report_browser" / "cases"


def load(name: str) -> RunResult:
    return jsonfile.read(CASES / f"{name}.json")


@pytest.mark.parametrize("name", ["red", "green", "empty"])
def test_a_result_survives_writing_and_reading(name, tmp_path):
    before = load(name)
    jsonfile.write(before, tmp_path / "result.json")
    assert jsonfile.read(tmp_path / "result.json") == before


def test_a_result_from_before_a_samples_power_and_heat_were_kept_is_read():
    data = json.loads((CASES / "green.json").read_text(encoding="utf-8"))
    for sample in (s for point in data["points"] for s in point["samples"]):
        del sample["power_w"], sample["hottest_c"]
    assert jsonfile.parse(json.dumps(data)) == jsonfile.read(CASES / "green.json")


def test_the_same_result_gives_the_same_bytes():
    assert jsonfile.dump(load("red")) == jsonfile.dump(load("red")) == (CASES / "red.json").read_text(encoding="utf-8")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    jsonfile.write(load("green"), path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        jsonfile.write(load("red"), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_no_measurement_is_refused_by_its_place(bad, tmp_path):
    result = load("green").model_copy(update={"extra": {"kernels": [{"median_us": bad}]}})
    with pytest.raises(ResultError, match=r"/extra/kernels/0/median_us.*not finite"):
        jsonfile.write(result, tmp_path / "result.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "not whole JSON"),
        (lambda text: "", "not whole JSON"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "schema_version is 2"),
        (lambda text: text.replace('"outcome": "PASS"', '"outcome": "FINE"'), "outcome"),
        (lambda text: text.replace('"seconds": 141.5', '"seconds": NaN'), "NaN is not a JSON number"),
        (lambda text: "[]", "not a run's result"),
    ],
)
def test_a_file_that_is_not_a_whole_result_is_refused_and_named(change, said, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(change((CASES / "green.json").read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ResultError, match=said) as caught:
        jsonfile.read(path)
    assert str(path) in str(caught.value)


def test_an_absent_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ResultError, match=r"nowhere\.json: cannot be read"):
        jsonfile.read(tmp_path / "nowhere.json")


def test_saving_writes_all_three_forms_readable_by_others(tmp_path):
    save(load("red"), tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"result.json", "summary.md", "report.html"}
    assert all(p.stat().st_mode & 0o044 == 0o044 for p in (tmp_path / "out").iterdir())


def test_a_lone_surrogate_from_a_log_does_not_lose_the_result(tmp_path):
    odd = load("empty").model_copy(update={"notes": ["log line \udcff cut in a character"]})
    save(odd, tmp_path)
    assert jsonfile.read(tmp_path / "result.json").outcome is Outcome.MISSING
    assert "log line" in json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["notes"][0]
