"""YAML that is small and stands for something large: one sentence, at once."""

from __future__ import annotations

import pytest
import yaml

from calibrant import InputError
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


LONG = {
    "hexadecimal": "0x" + "f" * 5000,
    "decimal": "1" * 101,
    "base 60": "9" + ":9" * 50_000,
    "base 60 with a fraction": "9" + ":9" * 50_000 + ".5",
    "tagged": "!!int '9" + ":9" * 50_000 + "'",
    "tagged float": "!!float '" + "9" * 101 + "'",
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_number_is_refused_before_it_is_computed(name, monkeypatch):
    """Python refuses to print one of 5,000 digits, and to compute one in base 60 takes quadratic time."""
    for kind in ("int", "float"):
        monkeypatch.setattr(yaml.SafeLoader, f"construct_yaml_{kind}", lambda *_: pytest.fail("it was computed"))
    with pytest.raises(InputError, match=r"^it has a number of more than 100 characters$"):
        parse_yaml(f"{{fit: {{rate: {LONG[name]}}}}}")


@pytest.mark.parametrize("text", ["1:30", "-1:30:00", "1:30.5", "!!int '1:2'"])
def test_a_number_in_base_60_is_refused(text):
    with pytest.raises(InputError, match=r"which YAML reads as a number in base 60; put it in quotes$"):
        parse_yaml(f"a: {text}")


@pytest.mark.parametrize("value", [0, -17, 2**64, 0.1, 1e-300, float("inf"), "1:30", "1:30.5", "0x10", "1" * 200])
def test_what_yaml_writes_is_read(value):
    assert parse_yaml(yaml.safe_dump({"a": value})) == {"a": value}
    assert parse_yaml("[0x1f, 0b11, 1_000, 1.5e+3]") == [31, 3, 1000, 1500.0]


@pytest.mark.parametrize(
    "text", ["!!timestamp x", "!!bool x", "!!int ''", "!!int x", "!!float x", "!!int [1]", "!!x 1"]
)
def test_a_value_that_is_not_of_its_tag_is_refused(text):
    with pytest.raises(InputError, match=r"^[^\n]+$"):
        parse_yaml(f"a: {text}")
