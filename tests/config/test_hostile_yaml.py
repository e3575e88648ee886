"""YAML that is small and stands for something large: one sentence, at once."""

from __future__ import annotations

import pytest

from calibrant.config.bounded_yaml import parse_yaml
from calibrant.config.loading import load_settings

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 10))
BOMBS = {"aliases": ALIASES, "merges": MERGES, "brackets": "[" * 3000, "maps": "{a: " * 3000, "itself": "&a [*a]"}
BOMBS |= {"large": "a: " + "x" * 300_000, "digits": "a: " + "1" * 5000}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_one_sentence(name, tmp_path):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_yaml(BOMBS[name])
    (tmp_path / "s.yaml").write_text(BOMBS[name])
    with pytest.raises(ValueError, match="is not YAML that can be read"):
        load_settings(file=tmp_path / "s.yaml")
