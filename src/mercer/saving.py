"""Saved models: arrays beside a description that builds only classes of this package.

A saved model is a ZIP of `model.json` and arrays in NumPy's format. Loading it runs no code but that of
this package: no pickle, no function of anybody else's.
"""

import dataclasses
import functools
import importlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .version import __version__

FORMAT = 1
PACKAGE = __name__.split(".")[0]
PLAIN = (str, int, float, bool, type(None))


def save(path: str | Path, model: Any) -> None:
    """Write a prior, posterior, draws, spectrum, network or fitted estimator to one file.

    Functions and classes of your own cannot be saved, since `load` builds only this package's;
    `pickle` takes them where you trust the file.
    """
    writer = _Writer()
    description = {"format": FORMAT, "version": __version__, "model": writer.encode(model, "model")}
    target = Path(path).expanduser()
    if not target.parent.is_dir():
        raise ValueError(f"{target.parent} is no folder; make it first, or choose another path.")
    partial = target.with_name(target.name + ".part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.json", json.dumps(description))
        for i, array in enumerate(writer.arrays):
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            archive.writestr(f"{i}.npy", buffer.getvalue())
    partial.replace(target)


def load(path: str | Path) -> Any:
    """Read what `save` wrote."""
    target = Path(path).expanduser()
    if not target.is_file():
        raise ValueError(f"{target} is no file; give the path that mercer.save wrote.")
    try:
        with zipfile.ZipFile(target) as archive:
            description = json.loads(archive.read("model.json"))
            names = sorted((n for n in archive.namelist() if n.endswith(".npy")), key=_number)
            arrays = [np.load(io.BytesIO(archive.read(n)), allow_pickle=False) for n in names]
        if description["format"] != FORMAT:
            raise _RefusalError(
                f"{target} has format {description['format']!r}, which is not known to this version."
            )
        return _Reader(arrays).decode(description["model"])
    except _RefusalError:
        raise
    # Whatever ZIP, JSON and NumPy make of bytes that anyone may have written.
    except Exception as error:
        raise ValueError(
            f"{target} is not a model that mercer.save wrote, or is damaged."
        ) from error


class _RefusalError(ValueError):
    """A valid file that this version or configuration cannot read."""


def _number(name: str) -> int:
    stem = name.removesuffix(".npy")
    if not stem.isdigit():
        raise KeyError(name)
    return int(stem)


class _Writer:
    """Describes objects in JSON, arrays by their number."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def encode(self, value: Any, where: str) -> Any:
        if isinstance(value, PLAIN):
            return {"plain": value}
        for kind, describe in self._rules():
            if kind(value):
                return describe(value, where)
        raise ValueError(
            f"{where} is {_name_of(value)}, which is not mercer's own and cannot be saved; use pickle."
        )

    def _rules(self) -> list[tuple[Callable[[Any], bool], Callable[[Any, str], Any]]]:
        return [
            (_is_key, self._key),
            (lambda v: isinstance(v, jax.Array | np.ndarray | np.generic), self._array),
            (lambda v: isinstance(v, dict), self._dict),
            (_is_named_tuple, self._object),
            (lambda v: isinstance(v, list | tuple), self._sequence),
            (_is_own_object, self._object),
            (_is_own_function, lambda v, _: {"function": f"{v.__module__}:{v.__qualname__}"}),
        ]

    def _array(self, value: Any, where: str) -> Any:
        self.arrays.append(np.asarray(value))
        return {"array": len(self.arrays) - 1, "jax": isinstance(value, jax.Array)}

    def _key(self, value: Any, where: str) -> Any:
        return {"key": self._array(jax.random.key_data(value), where)}

    def _dict(self, value: dict, where: str) -> Any:
        if not all(isinstance(name, str) for name in value):
            raise ValueError(
                f"{where} is a dict whose keys are not all strings; it cannot be saved."
            )
        return {"dict": {n: self.encode(v, f"{where}[{n!r}]") for n, v in value.items()}}

    def _sequence(self, value: Any, where: str) -> Any:
        entries = [self.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": entries}

    def _object(self, value: Any, where: str) -> Any:
        cls = type(value)
        if not _is_own(cls):
            raise ValueError(
                f"{where} is {_name_of(value)}, a class of your own: load builds only mercer's; "
                "use pickle."
            )
        fields = {n: self.encode(v, f"{where}.{n}") for n, v in _fields(value).items()}
        return {"class": f"{cls.__module__}:{cls.__qualname__}", "fields": fields}


class _Reader:
    """Builds objects from their descriptions."""

    def __init__(self, arrays: list[np.ndarray]):
        self.arrays = arrays

    def decode(self, value: Any) -> Any:
        (kind, content), *rest = value.items()
        if kind == "plain":
            return content
        if kind == "array":
            array = self.arrays[content]
            return _as_jax(array) if dict(rest)["jax"] else array
        if kind == "key":
            return jax.random.wrap_key_data(self.decode(content))
        if kind == "dict":
            return {name: self.decode(entry) for name, entry in content.items()}
        if kind in ("list", "tuple"):
            entries = [self.decode(entry) for entry in content]
            return entries if kind == "list" else tuple(entries)
        if kind == "function":
            return _find(content, _is_own_function)
        if kind == "class":
            cls = _find(content, _is_own_class)
            fields = {name: self.decode(entry) for name, entry in dict(rest)["fields"].items()}
            return _build(cls, fields)
        raise KeyError(kind)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def _is_own(cls: type) -> bool:
    return cls.__module__.split(".")[0] == PACKAGE


def _is_own_class(value: Any) -> bool:
    return isinstance(value, type) and _is_own(value)


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _is_own_object(value: Any) -> bool:
    known = isinstance(value, eqx.Module) or dataclasses.is_dataclass(value)
    return not isinstance(value, type) and (
        known or (_is_own(type(value)) and hasattr(value, "__dict__"))
    )


def _is_own_function(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    return callable(value) and (module or "").split(".")[0] == PACKAGE and "<" not in name


def _fields(value: Any) -> dict[str, Any]:
    if _is_named_tuple(value):
        return value._asdict()
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return dict(vars(value))


def _build(cls: type, fields: dict[str, Any]) -> Any:
    """An object with these fields, its constructor not run."""
    if issubclass(cls, tuple):
        return cls(**fields)
    instance = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


def _find(path: str, accepts: Callable[[Any], bool]) -> Any:
    """An object of this package by "module:name"."""
    module, name = path.split(":")
    if module.split(".")[0] != PACKAGE:
        raise KeyError(path)
    try:
        member: Any = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ModuleNotFoundError, AttributeError):
        member = None
    if not accepts(member):
        raise _RefusalError(f"this file names {path}, which this version of mercer does not have.")
    return member


def _as_jax(array: np.ndarray) -> jax.Array:
    if array.dtype == np.float64 and not jax.config.read("jax_enable_x64"):
        raise _RefusalError(
            "this model was saved with 64-bit floats; call "
            'jax.config.update("jax_enable_x64", True) before loading it.'
        )
    return jnp.asarray(array)


def _name_of(value: Any) -> str:
    return getattr(value, "__qualname__", None) or type(value).__qualname__
