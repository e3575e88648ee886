"""A network of a user's own, named by the function that makes it."""

from __future__ import annotations

import difflib
import importlib
import json
from typing import Any
from urllib.parse import parse_qsl

from torch import nn

from calibrant import InputError
from calibrant.slots import PluginError

_WORDS = {"True": True, "False": False, "None": None}


def build_module(spec: str) -> nn.Module:
    """The network that the function or class named by `spec`, `package.module:function?option=value&...`, makes.

    The package is imported, so `spec` must come from the user and never from a file. Options are keyword arguments;
    numbers, `true`, `false`, `null` and JSON lists are read as such, all else is text.

    >>> build_module("torch.nn:Linear?in_features=2&out_features=3&bias=false")
    Linear(in_features=2, out_features=3, bias=False)
    """
    head, _, query = spec.partition("?")
    package, _, name = head.partition(":")
    if not package or not name:
        raise InputError(f"module {spec!r} must read package.module:function, or package.module:function?option=value")
    options = {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}
    factory = _imported(package, name)
    try:
        network = factory(**options)
    except (TypeError, ValueError) as error:
        raise InputError(f"module {spec} cannot be made: {error}") from error
    except Exception as error:  # of code that is not ours
        raise PluginError(f"module {spec} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise InputError(f"module {spec} is not a network: {name} returns a {type(network).__name__}, no nn.Module")
    return network


def _imported(package: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise  # the package is there; what it imports is not
        where = "is it on PYTHONPATH, or in this folder?"
        raise InputError(f"module {package} cannot be imported: there is no module {error.name}; {where}") from None
    except Exception as error:  # of code that is not ours
        raise PluginError(f"module {package} cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [one for one in dir(found) if not one.startswith("_")], n=1)
            raise InputError(f"module {package} has no {name}{f'; did you mean {near[0]}?' if near else ''}")
        found = getattr(found, part)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return _WORDS.get(text, text)
