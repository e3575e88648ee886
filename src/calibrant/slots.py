"""The open slots: what can be plugged in, by kind and name, from this package and from outside.

A posterior, regularizer, calibrator, detector, selector objective, data source or outlier synthesizer is one file with
one registration:

    @register("regularizer", "squared_gap")
    class SquaredGap(nn.Module): ...

Settings, `--help`, tables and the docs learn of it from here. Our own registrations are read from the source text, so
that their names are known without importing torch, and the file is imported when the name is looked up. The same
decorator, `calibrant.register`, registers what lives outside; the command line imports it with `--plugin MODULE`.

May import: nothing of ours.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from calibrant import InputError

Item = TypeVar("Item")
ROOMS: Mapping[str, str] = {
    "posterior": "posteriors",
    "regularizer": "losses",
    "calibrator": "calibrators",
    "detector": "detectors",
    "objective": "selective",
    "source": "data",
    "synthesizer": "data",
}
"""The kinds of slots, and the room in which our own of each kind live."""
_REGISTRATION = re.compile(r'^@?register\(\s*"([a-z]+)",\s*"([\w-]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Registration:
    """What stands behind a name: the class or function, the module it is from, and a plugin's own version."""

    item: Any
    module: str
    version: str = ""

    @property
    def plugin(self) -> bool:
        """Whether it lives outside this package."""
        return self.module.partition(".")[0] != __package__


class PluginError(InputError):
    """A plugin that failed while it was imported, by an error of its own, which is the cause of this one."""


_registered: dict[tuple[str, str], Registration] = {}
_plugins: dict[str, None] = {}


def register(kind: str, name: str, *, version: str = "") -> Callable[[Item], Item]:
    """Decorator: make a class or function known as the `kind` called `name`.

    Args:
        kind: one of `calibrant.slots.ROOMS`, such as "detector" or "regularizer".
        name: as settings and tables will call it.
        version: of a plugin whose results change from one version to the next: results that were made with another
            version are then made again.
    """
    if kind not in ROOMS:
        raise InputError(f"kind must be one of {', '.join(ROOMS)}, not {kind!r}")
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name):
        raise InputError(f"name must be letters, digits, _ and -, and begin with a letter, not {name!r}")

    def add(item: Item) -> Item:
        module = str(item.__module__)
        known = _registered.get((kind, name))
        made = Registration(item, module, version)
        if made.plugin and (name in _own(kind) or (known is not None and known.module != module)):
            owner = "calibrant itself" if name in _own(kind) else known.module if known else ""
            raise InputError(f"{kind} {name!r} is registered by {owner} already; choose another name")
        _registered[kind, name] = made
        return item

    return add


def names(kind: str) -> tuple[str, ...]:
    """The names of a kind, sorted, without importing what is behind them.

    >>> "weighted_mmce" in names("regularizer")
    True
    """
    return tuple(sorted({*_own(kind), *(name for which, name in _registered if which == kind)}))


def check(kind: str, name: str) -> str:
    """`name`, refused in one sentence where no `kind` is called so.

    >>> check("regularizer", "mcce")
    Traceback (most recent call last):
    calibrant.InputError: there is no regularizer 'mcce'; did you mean mmce? (there are avuc, ...)
    """
    known = names(kind)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"there is no {kind} {name!r}{hint} (there are {', '.join(known)}; another one needs --plugin MODULE)"
    )


def registration(kind: str, name: str) -> Registration:
    """What is registered as the `kind` called `name`; the file of one of ours is imported now."""
    check(kind, name)
    if (kind, name) not in _registered:
        importlib.import_module(_own(kind)[name])
    return _registered[kind, name]


def lookup(kind: str, name: str) -> Any:
    """The class or function registered as the `kind` called `name`."""
    return registration(kind, name).item


def build(kind: str, name: str, options: Mapping[str, Any] | None = None, *given: Any, **more: Any) -> Any:
    """The `kind` called `name`, made with `options`, which are checked against its signature and its types first.

    `given` and `more` are arguments that the caller adds; options must not repeat them.
    """
    item, chosen = lookup(kind, name), dict(options or {})
    legal = [option for option in options_of(kind, name) if option not in more]
    for option in chosen:
        if option not in legal:
            listing = f"it has {', '.join(legal)}" if legal else "it has none"
            raise InputError(f"{kind} {name} has no option {option!r}; {listing}")
    types = _types_of(item)
    for option, value in chosen.items():
        chosen[option] = _of_type(types.get(option, Any), value, f"{kind} {name}: option {option}")
    return item(*given, **chosen, **more)


def options_of(kind: str, name: str) -> dict[str, Any]:
    """The options of the `kind` called `name` with their defaults: the keywords of its constructor.

    >>> options_of("regularizer", "mmce")
    {'width': 0.4, 'squared': False}
    """
    signature = inspect.signature(lookup(kind, name))
    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        option: parameter.default
        for option, parameter in signature.parameters.items()
        if parameter.kind in keywords and parameter.default is not inspect.Parameter.empty
    }


def _types_of(item: Any) -> dict[str, Any]:
    """The annotations of what `options_of` lists, of base classes too; those that cannot be resolved are left out."""
    classes = reversed(inspect.getmro(item)) if inspect.isclass(item) else ()
    makers = [vars(base)["__init__"] for base in classes if "__init__" in vars(base)] or [item]
    found: dict[str, Any] = {}
    for maker in makers:
        with contextlib.suppress(Exception):  # a plugin may annotate with what it imports for type checkers alone
            found |= get_type_hints(maker)
    return found


_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _of_type(wanted: Any, value: Any, what: str) -> Any:
    """`value`, which settings may hold, as the annotation `wanted` has it; refused where that admits nothing like it.

    A number that YAML reads as a text, such as 1e-4, is one. Only plain values are looked at.
    """
    choices = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    if not isinstance(value, (bool, int, float, str, list, dict, NoneType)) or any(
        _admits(choice, value) for choice in choices
    ):
        return value
    if isinstance(value, str) and float in choices:
        with contextlib.suppress(ValueError):
            return float(value)
    known = [_SCALARS[choice] for choice in choices if choice in _SCALARS]
    known += [repr(legal) for choice in choices if get_origin(choice) is Literal for legal in get_args(choice)]
    known += ["null"] * (NoneType in choices)
    remedy = f"must be {' or '.join(known)}" if known else "can be given in Python only"
    raise InputError(f"{what} {remedy}, not {value!r}")


def _admits(wanted: Any, value: Any) -> bool:
    origin = get_origin(wanted) or wanted
    if origin is Literal:
        return value in get_args(wanted)
    if inspect.isclass(origin) and issubclass(origin, Collection) and origin is not str:
        return isinstance(value, list if origin is tuple else origin)
    if wanted in (int, float):
        return isinstance(value, (int, wanted)) and not isinstance(value, bool)
    if wanted in _SCALARS or wanted is NoneType:
        return isinstance(value, wanted)
    return origin is not Callable


def name_of(kind: str, item: Any) -> str | None:
    """The name under which `item` is registered as a `kind`; None if it is not.

    >>> name_of("regularizer", lookup("regularizer", "mmce"))
    'mmce'
    """
    return next((name for (which, name), known in _registered.items() if which == kind and known.item is item), None)


def recorded(kind: str, item: Any) -> dict[str, str]:
    """What to write beside the saved state of an instance of the class `item`, so that `required` finds it again."""
    name = name_of(kind, item)
    if name is None:
        raise InputError(f'{item.__name__} cannot be saved: put @calibrant.register("{kind}", NAME) before the class')
    return {"name": name, "module": _registered[kind, name].module}


def required(kind: str, name: str, module: str) -> Any:
    """The class that `recorded` named, refused in one sentence where its plugin is missing; nothing is imported."""
    if name in names(kind):
        return lookup(kind, name)
    if module == "__main__":
        remedy = f'it was defined in a script; run its @calibrant.register("{kind}", "{name}") first'
    else:
        remedy = f"add --plugin {module} to the command, or import {module} first"
    raise InputError(f"the {kind} {name!r} of the plugin {module} is needed, but not registered: {remedy}")


def counted(kind: str, name: str) -> str:
    """What a result that depends on the `kind` called `name` depends on: its name, and the version of a plugin."""
    known = _registered.get((kind, name))
    return f"{name}@{known.version}" if known is not None and known.plugin and known.version else name


def load_plugins(modules: Iterable[str]) -> None:
    """Import `modules`, which register what they bring; one that is missing or fails is refused in one sentence."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the plugin is there; what it imports is not
            where = "is it on PYTHONPATH, or in this folder?"
            raise InputError(f"plugin {module} cannot be imported: there is no module {error.name}; {where}") from None
        except InputError:
            raise  # a registration that was refused
        except Exception as error:
            about = f"{type(error).__name__}: {error}"
            raise PluginError(f"plugin {module} fails while it is imported ({about}); correct it") from error
        _plugins[module] = None


def is_loaded(module: str) -> bool:
    """Whether the plugin `module` was imported, by `load_plugins` or by the user's own code."""
    return module in sys.modules


def loaded_plugins() -> tuple[str, ...]:
    """The modules that `load_plugins` imported, for the processes that this one starts."""
    return tuple(_plugins)


def plugin_at_fault(error: BaseException) -> str:
    """The loaded plugin that the innermost frame of `error` that is a plugin's or ours is in; "" if none."""
    found = ""
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] == __package__:
            found = ""
        else:
            found = next((one for one in _plugins if f"{module}.".startswith(f"{one}.")), found)
    return found


def plugin_options() -> str:
    """The options that give a command the plugins of this one: `" --plugin MODULE"` for each."""
    return "".join(f" --plugin {module}" for module in _plugins)


@cache
def _own(kind: str) -> dict[str, str]:
    """The modules of our own registrations of `kind` by name, from the source text."""
    root = Path(__file__).parent
    found: dict[str, str] = {}
    for file in sorted((root / ROOMS[kind]).rglob("*.py")):
        module = ".".join((str(__package__), *file.relative_to(root).with_suffix("").parts))
        found |= {name: module for which, name in _REGISTRATION.findall(file.read_text("utf-8")) if which == kind}
    return found
