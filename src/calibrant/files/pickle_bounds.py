"""How large and how deeply nested the values of a pickle are, found without running it.

A tuple that is the key of a dictionary is hashed, which calls the hash of what it holds, level by level, on the stack
of the machine: a million levels end the process, and a tuple that holds another one twice, sixty times over, takes
forever. So both are found first, by a walk over the instructions that keeps for every value on the pickle's stack only
how many tuples or frozen sets lie in it, one within the other, and how many values, each as often as it occurs.
"""

from __future__ import annotations

import pickletools
from itertools import count
from typing import IO, NamedTuple

from calibrant import InputError

MOST_INSTRUCTIONS = 2**21
MOST_LEVELS = 100
MOST_TAKEN = 2**24
_NESTED = f"tuples more than {MOST_LEVELS} levels deep, or values that stand for more than {MOST_TAKEN:,}"


class Extent(NamedTuple):
    """How many tuples lie in a value, one within the other, and how many values."""

    levels: int = 0
    values: int = 1


def check_pickle(content: bytes | IO[bytes]) -> None:
    """Refuse the pickle in `content`, or the next one in an open file, if it would grow out of proportion.

    It may have 2,097,152 instructions, that many memory cells, tuples of 100 levels, and its instructions may take
    16,777,216 values in all.
    """
    walk = _Walk()
    for number, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if number > MOST_INSTRUCTIONS or (instruction.name.endswith("PUT") and int(argument or 0) > MOST_INSTRUCTIONS):
            raise InputError(f"more than {MOST_INSTRUCTIONS:,} instructions or memory cells")
        walk.step(instruction, argument)


class _Walk:
    """The stack and the memory cells of a pickle, as extents."""

    def __init__(self) -> None:
        self._stacks: list[list[Extent]] = [[]]
        self._cells: dict[int, Extent] = {}
        self._numbers = count()
        self._taken = 0

    def step(self, instruction: pickletools.OpcodeInfo, argument: object) -> None:
        """Take one instruction."""
        name, stack = instruction.name, self._stacks[-1]
        if name == "MARK":
            self._stacks.append([])
        elif name.endswith("PUT") or name == "MEMOIZE":
            self._cells[next(self._numbers) if name == "MEMOIZE" else int(str(argument))] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self._cells.get(int(str(argument)), Extent()))
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP" and not stack:
            self._to_mark()
        else:
            self._replace(instruction)

    def _replace(self, instruction: pickletools.OpcodeInfo) -> None:
        """Any other instruction takes some values, or all down to a mark, and leaves others."""
        taken = []
        before = list(instruction.stack_before)
        if pickletools.markobject in before:
            taken = self._to_mark()
            before = before[: before.index(pickletools.markobject)]
        stack = self._stacks[-1]
        if len(before) > len(stack):
            raise InputError("an instruction without what it needs")
        taken += [stack.pop() for _ in before]
        nests = instruction.name.startswith("TUPLE") or instruction.name == "FROZENSET"
        self._taken += sum(extent.values for extent in taken)
        if self._taken > MOST_TAKEN:
            raise InputError(_NESTED)
        made = self._made(taken) if nests else Extent()
        stack += [made for _ in instruction.stack_after]

    @staticmethod
    def _made(taken: list[Extent]) -> Extent:
        """A tuple of values of these extents."""
        levels = 1 + max((extent.levels for extent in taken), default=0)
        if levels > MOST_LEVELS:
            raise InputError(_NESTED)
        return Extent(levels, 1 + sum(extent.values for extent in taken))

    def _to_mark(self) -> list[Extent]:
        if len(self._stacks) == 1:
            raise InputError("an instruction without its mark")
        return self._stacks.pop()
