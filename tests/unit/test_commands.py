"""``python -m perfgate``: what it offers, told where a user asks and where a name is wrong."""

from __future__ import annotations

import re

import pytest

from perfgate.__main__ import COMMANDS, main


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_help_lists_every_command_on_standard_output_and_succeeds(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([asked]) == 0
    said = capsys.readouterr()
    assert re.findall(r"^  (\S+)  +\S", said.out, re.MULTILINE) == list(COMMANDS)
    assert said.err == ""


@pytest.mark.parametrize("arguments", [["reprot"], []])
def test_a_name_that_is_none_is_an_error_that_lists_them(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert "usage: " in said.err
    assert arguments == [] or "'reprot'" in said.err
    assert said.out == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_each_commands_help_is_for_users_and_not_for_readers_of_the_code(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: python -m perfgate {name}" in said
    assert not re.search(r"``|\(edge\)|pure", said)
