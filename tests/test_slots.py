"""One registration makes a thing known by its name, from inside and from outside."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import calibrant
from calibrant import InputError, slots

SOURCE = Path(calibrant.__file__).parent


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it; ours, which registers once, is imported before."""
    for kind in slots.ROOMS:
        for name in slots.names(kind):
            slots.registration(kind, name)
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))
    monkeypatch.setattr(slots, "_plugins", dict(slots._plugins))


@pytest.mark.parametrize("kind", slots.ROOMS)
def test_the_names_in_the_source_are_those_that_importing_registers(kind: str) -> None:
    own = slots.names(kind)
    for file in (SOURCE / slots.ROOMS[kind]).rglob("*.py"):
        importlib.import_module(".".join(("calibrant", *file.relative_to(SOURCE).with_suffix("").parts)))
    registered = {n for (k, n), r in slots._registered.items() if k == kind and not r.plugin}
    assert registered == set(own)


def test_names_need_no_torch() -> None:
    code = (
        "import sys; from calibrant import slots; [slots.names(k) for k in slots.ROOMS]; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.usefixtures("clean")
def test_what_is_registered_from_outside_is_known_by_its_name() -> None:
    @slots.register("regularizer", "mine", version="2")
    class Mine:
        def __init__(self, scale: float = 1.0) -> None:
            self.scale = scale

    assert "mine" in slots.names("regularizer")
    assert slots.lookup("regularizer", "mine") is Mine
    assert slots.options_of("regularizer", "mine") == {"scale": 1.0}
    assert slots.build("regularizer", "mine", {"scale": 3}).scale == 3
    assert slots.counted("regularizer", "mine") == "mine@2"
    assert slots.counted("regularizer", "mmce") == "mmce"
    assert slots.registration("regularizer", "mine").plugin
    assert not slots.registration("regularizer", "mmce").plugin


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: slots.register("sorcery", "x"), "kind must be one of posterior, .*, not 'sorcery'"),
        (lambda: slots.register("detector", "1 x"), "name must be letters"),
        (lambda: slots.register("regularizer", "mmce")(Path), "'mmce' is registered by calibrant itself already"),
        (lambda: slots.check("regularizer", "mcce"), "there is no regularizer 'mcce'; did you mean mmce?"),
        (lambda: slots.build("regularizer", "mmce", {"widht": 1}), "mmce has no option 'widht'; it has width, squared"),
        (lambda: slots.build("regularizer", "esd", {"width": 1}), "esd has no option 'width'; it has none"),
        (lambda: slots.load_plugins(["not_there_at_all"]), "plugin not_there_at_all cannot be imported"),
    ],
)
def test_mistakes_get_a_sentence(call, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("kind", "name", "options", "sentence"),
    [
        ("posterior", "deep_ensemble", {"size": 2.5}, "option size must be a whole number, not 2.5"),
        ("posterior", "deep_ensemble", {"size": True}, "option size must be a whole number, not True"),
        ("posterior", "deep_ensemble", {"fresh": 3}, "option fresh must be true or false, not 3"),
        ("posterior", "swag", {"iterates": {}}, "option iterates must be a whole number, not {}"),
        ("posterior", "mc_dropout", {"rate": "often"}, "option rate must be a number or null, not 'often'"),
        ("posterior", "ivon", {"init_std": [0.1]}, r"option init_std must be a number or null, not \[0.1\]"),
        (
            "posterior",
            "mean_field",
            {"prior_mean": "start"},
            "option prior_mean must be a number or 'init', not 'start'",
        ),
        ("posterior", "mean_field", {"bayesian": "head"}, "option bayesian can be given in Python only, not 'head'"),
        ("detector", "density", {"max_points": "all"}, "option max_points must be a whole number, not 'all'"),
        ("regularizer", "mmce", {"width": None}, "option width must be a number, not None"),
        ("calibrator", "auto", {"candidates": 3}, "option candidates must be a text, not 3"),
    ],
)
def test_an_option_of_the_wrong_type_gets_a_sentence(kind: str, name: str, options, sentence: str) -> None:
    given = [nn.Linear(3, 2)] if kind == "posterior" else []
    with pytest.raises(InputError, match=f"^{kind} {name}: {sentence}$"):
        slots.build(kind, name, options, *given)


def test_options_of_the_right_type_are_taken() -> None:
    # What YAML reads as a text, as -o posterior.options.weight_decay=1e-4 does, is a number where one is wanted.
    assert slots.build("posterior", "ivon", {"ess": "1e4", "weight_decay": "1e-4"}, nn.Linear(3, 2)).ess == 10_000.0
    everywhere = slots.build("posterior", "mean_field", {"bayesian": lambda name, owner: True}, nn.LayerNorm(3))
    assert len(everywhere.rho) == 2
    assert slots.build("detector", "svm", {"components": "auto"}).components == "auto"
    assert slots.build("calibrator", "auto", {"candidates": ["temperature"]}).candidates == ("temperature",)


@pytest.mark.usefixtures("clean")
def test_a_plugin_that_lacks_a_module_of_its_own_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugin_that_needs.py").write_text("import something_else_entirely\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_else_entirely"):
        slots.load_plugins(["plugin_that_needs"])
    assert slots.loaded_plugins() == ()
