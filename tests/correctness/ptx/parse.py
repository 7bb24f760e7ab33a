"""PTX text to instructions: predicates, operands, labels, registers' types, and scopes with names of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from ptx.errors import UnknownInstructionError

# Directives that say nothing about what is computed; those that end with the line, and those that end with a semicolon.
_LINES = (".loc", ".file")
_STATEMENTS = (".pragma",)
_NAME = re.compile(r"(?<![\w%$.])[A-Za-z_]\w*")
_LABEL = re.compile(r"([\w$]+):")


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``predicate`` is a register or "", ``text`` the statement, ``line`` its line in the kernel's source."""

    op: str
    operands: tuple[str, ...] = ()
    predicate: str = ""
    negated: bool = False
    text: str = ""
    line: int = 0


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel's instructions, where its labels point, and the type ("b32", ...) of each register or register prefix."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    types: dict[str, str]
    decoded: dict[Instruction, Any] = field(default_factory=dict)
    """What the machine made of the instructions: kept, and shared with copies that have a fault in them."""

    def type_of(self, register: str) -> str:
        """Declared type of a register; those of ``.reg .b32 %r<9>`` go by their prefix."""
        kind = self.types.get(register) or self.types.get(register.rstrip("0123456789"))
        if kind is None:
            raise UnknownInstructionError(f"register {register} was never declared")
        return kind

    def without(self, *numbers: int) -> Program:
        """The same program with these instructions doing nothing: a fault that somebody must notice."""
        gone = set(numbers)
        kept = (Instruction("nop", text="nop") if n in gone else each for n, each in enumerate(self.instructions))
        return replace(self, instructions=tuple(kept))


def parse(text: str) -> Program:
    """The one kernel of a PTX module, or a bare function body."""
    body = re.sub(r"//[^\n]*", "", text)
    if ".entry" in body:
        body = body[body.index("{", body.index(".reqntid") if ".reqntid" in body else body.index(".entry")) + 1 :]
    parser = _Parser()
    at = 0
    while at < len(body) and not parser.closed:
        at = parser.statement(body, at)
    return parser.program()


class _Parser:
    """Reads statement by statement. A name declared in a scope becomes ``name@number of the scope``."""

    def __init__(self) -> None:
        self.closed = False
        self._instructions: list[tuple[Instruction, tuple[int, ...]]] = []
        self._labels: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._scopes: list[tuple[int, set[str]]] = [(0, set())]
        self._opened = 0
        self._line = 0

    def statement(self, body: str, at: int) -> int:
        """Read what starts at ``at`` and return where the next statement may start."""
        if body[at].isspace() or body[at] == ";":
            return at + 1
        if body[at] == "{":
            self._opened += 1
            self._scopes.append((self._opened, set()))
            return at + 1
        if body[at] == "}":
            self._scopes.pop()
            self.closed = not self._scopes
            return at + 1
        if label := _LABEL.match(body, at):
            self._labels[_scoped(label[1], self._scopes[-1][0])] = len(self._instructions)
            return label.end()
        line_end = body.find("\n", at)
        if body.startswith(_LINES, at):
            # The kernel's own file is the first; line 0 stands for what the compiler adds, and inside of a scope, which is
            # inline assembly, the lines counted are its own.
            if (
                len(self._scopes) == 1
                and (found := re.match(r"\.loc\s+1\s+(\d+)", body[at : at + 40]))
                and found[1] != "0"
            ):
                self._line = int(found[1])
            return line_end if line_end >= 0 else len(body)
        end = body.find(";", at)
        if end < 0:
            raise UnknownInstructionError(f"no semicolon ends {body[at:].strip()[:80]!r}")
        text = " ".join(body[at:end].split())
        if text.startswith(".reg"):
            self._declare(text)
        elif not text.startswith(_STATEMENTS):
            path = tuple(number for number, _ in self._scopes)
            self._instructions.append((_instruction(self._renamed(text), text, self._line), path))
        return end + 1

    def program(self) -> Program:
        return Program(tuple(self._resolved(*each) for each in self._instructions), self._labels, self._types)

    def _declare(self, text: str) -> None:
        _, kind, names = text.split(None, 2)
        number, own = self._scopes[-1]
        for name in names.split(","):
            name = re.sub(r"<\d+>$", "", name.strip())
            self._types[_scoped(name, number)] = kind.lstrip(".")
            own.add(name)

    def _renamed(self, text: str) -> str:
        def innermost(found: re.Match[str]) -> str:
            for number, names in reversed(self._scopes):
                if found[0] in names:
                    return _scoped(found[0], number)
            return found[0]

        return _NAME.sub(innermost, text)

    def _resolved(self, instruction: Instruction, path: tuple[int, ...]) -> Instruction:
        if not instruction.op.startswith("bra"):
            return instruction
        for number in reversed(path):
            label = _scoped(instruction.operands[0], number)
            if label in self._labels:
                return replace(instruction, operands=(label,))
        raise UnknownInstructionError(f"no label for {instruction.text}")


def _scoped(name: str, number: int) -> str:
    return f"{name}@{number}" if number else name


def _instruction(renamed: str, text: str, line: int) -> Instruction:
    found = re.fullmatch(r"(?:@(!?)(\S+)\s+)?(\S+)(?:\s+(.*))?", renamed)
    if found is None or found[3].startswith("."):
        raise UnknownInstructionError(f"not an instruction: {text}")
    return Instruction(found[3], tuple(split_operands(found[4] or "")), found[2] or "", found[1] == "!", text, line)


def split_operands(text: str) -> list[str]:
    """Split at commas outside of braces and brackets."""
    return [part.strip() for part in re.split(r",(?![^{]*\})(?![^\[]*\])", text) if part.strip()]


def members(operand: str) -> list[str]:
    """The registers of a vector operand ``{a, b}``; a scalar is a vector of one."""
    return [part.strip() for part in operand.strip("{} ").split(",")]
