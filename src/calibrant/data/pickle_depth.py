"""How deeply tuples are nested in a pickle, found without running it.

A tuple that is the key of a dictionary is hashed, which calls the hash of what it holds, level by level, on the stack
of the machine: a million levels end the process. So the depth is found first, by a walk over the instructions that
keeps for every value on the pickle's stack only how many tuples or frozen sets lie in it, one within the other.
"""

from __future__ import annotations

import pickletools
from itertools import count

from calibrant import InputError


class Depth:
    """The stack and the memory cells of a pickle, as depths."""

    def __init__(self) -> None:
        self._stacks: list[list[int]] = [[]]
        self._cells: dict[int, int] = {}
        self._numbers = count()

    def step(self, instruction: pickletools.OpcodeInfo, argument: object) -> int:
        """Take one instruction; returns the depth of what is on the top of the stack after it."""
        name, stack = instruction.name, self._stacks[-1]
        if name == "MARK":
            self._stacks.append([])
        elif name.endswith("PUT") or name == "MEMOIZE":
            self._cells[next(self._numbers) if name == "MEMOIZE" else int(str(argument))] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self._cells.get(int(str(argument)), 0))
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP" and not stack:
            self._to_mark()
        else:
            self._replace(instruction)
        return (self._stacks[-1] or [0])[-1]

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
        stack += [1 + max(taken, default=0) if nests else 0 for _ in instruction.stack_after]

    def _to_mark(self) -> list[int]:
        if len(self._stacks) == 1:
            raise InputError("an instruction without its mark")
        return self._stacks.pop()
