"""``python -m perfgate report`` makes a stored result's page anew, without what belongs to one machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfgate.__main__ import main
from perfgate.report import jsonfile

CASES = Path(__file__).parents[1] / "report_browser" / "cases"
EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "example-report").glob("*/result.json"))


def test_the_three_files_are_made_from_the_result_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(CASES / "red.json"), "--out", str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "result.json", "summary.md"]
    assert "REGRESSION" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert str(tmp_path / "out") in capsys.readouterr().out


def test_making_it_again_changes_nothing(tmp_path: Path) -> None:
    main(["report", str(CASES / "red.json"), "--out", str(tmp_path / "a")])
    main(["report", str(tmp_path / "a" / "result.json"), "--out", str(tmp_path / "b")])
    for name in ("report.html", "result.json", "summary.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_figures_stay_and_paths_and_secrets_go(tmp_path: Path) -> None:
    stored = jsonfile.read(CASES / "red.json")
    typed = ["pytest", "--report", "/home/mona/x/run", "--server-url", "http://mona:hush@node:1"]
    text = jsonfile.dump(stored.model_copy(update={"command": typed, "notes": ["recorded /home/mona/b/1x-h200.json"]}))
    (tmp_path / "result.json").write_text(text, encoding="utf-8")
    assert main(["report", str(tmp_path / "result.json"), "--out", str(tmp_path / "out")]) == 0
    for file in (tmp_path / "out").iterdir():
        assert "mona" not in file.read_text(encoding="utf-8"), file.name
        assert "hush" not in file.read_text(encoding="utf-8"), file.name
    made = jsonfile.read(tmp_path / "out" / "result.json")
    assert made.points == stored.points
    assert made.notes == ["recorded 1x-h200.json"]


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("{", "not whole JSON"), ("{}", "recipe")])
def test_what_is_no_result_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content, encoding="utf-8")
    assert main(["report", str(tmp_path / "result.json"), "--out", str(tmp_path / "out")]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_command_shows_both() -> None:
    assert main(["reprot"]) == 2


@pytest.mark.parametrize("result", EXAMPLES, ids=[p.parent.name for p in EXAMPLES])
def test_a_committed_example_is_what_the_command_makes_of_its_result(result: Path, tmp_path: Path) -> None:
    assert main(["report", str(result), "--out", str(tmp_path)]) == 0
    for name in ("report.html", "result.json", "summary.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (result.parent / name).read_text(encoding="utf-8")
    assert json.loads(result.read_text(encoding="utf-8"))["points"]
