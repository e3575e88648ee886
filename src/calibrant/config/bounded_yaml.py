"""YAML that cannot grow: what a text may hold is bounded before anything is made of it."""

from __future__ import annotations

from typing import Any

import yaml

from calibrant import InputError

MOST_CHARACTERS = 2**18
MOST_NODES = 20_000
MOST_DEPTH = 40
MOST_DIGITS = 100
# What values of another type than their tag says lead to.
_WRONG = (yaml.YAMLError, ValueError, OverflowError, RecursionError, LookupError, AttributeError, TypeError)


def parse_yaml(text: str) -> Any:
    """The value in `text`, of plain types; what is no YAML, or too large, is refused with a reason.

    A text has at most 262,144 characters, 20,000 values and 40 levels; what an alias or a merge key stands for counts
    as often as it is used, so that a small text cannot stand for a large value. A number has at most 100 characters;
    one in base 60, as YAML 1.1 reads 1:30, is refused.

    >>> parse_yaml("{a: &rates [0.1, 0.2], b: *rates}")
    {'a': [0.1, 0.2], 'b': [0.1, 0.2]}
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"it has more than {MOST_CHARACTERS:,} characters")
    try:
        return yaml.load(text, _Loader)
    except _WRONG as error:
        raise InputError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    """Counts values and levels while they are composed, before they are constructed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth, self.total, self.sizes = 0, 0, dict[int, int]()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; `sizes` has the number of values that it stands for."""
        alias, before = self.check_event(yaml.AliasEvent), self.total
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise InputError(f"it has more than {MOST_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if alias and id(node) not in self.sizes:
            raise InputError("it has a value that contains itself")
        self.total += self.sizes[id(node)] if alias else 1
        if self.total > MOST_NODES:
            raise InputError(f"it stands for more than {MOST_NODES:,} values")
        self.sizes[id(node)] = self.total - before
        return node


def _number(loader: _Loader, node: Any) -> Any:
    """A number that is short and not in base 60; both take time out of proportion, the second is never meant."""
    if len(node.value) > MOST_DIGITS:
        raise InputError(f"it has a number of more than {MOST_DIGITS} characters")
    if ":" in node.value:
        raise InputError(f"it has {node.value}, which YAML reads as a number in base 60; put it in quotes")
    make = loader.construct_yaml_int if node.tag.endswith(":int") else loader.construct_yaml_float
    return make(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)
