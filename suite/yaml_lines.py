"""YAML file -> pydantic model; every mistake becomes a SpecError that names file, line and dotted key.

The file is composed with PyYAML's SafeLoader and built from its nodes, so that each value's line is known and only
plain data (mappings with text keys, lists, text, numbers, booleans, null) can come out of it.
"""

import math
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import yaml
from pydantic import ValidationError, model_validator

from tilearena.errors import SpecError
from tilearena.records import Record

Loc = tuple[int | str, ...]
Model = TypeVar("Model", bound="YamlRecord")

MAX_FILE_BYTES = 1 << 20
#: Values after alias expansion: a few aliases of aliases can stand for billions of values.
MAX_VALUES = 500_000
MAX_DEPTH = 32
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + kind for kind in ("null", "bool", "int", "float", "str")}
#: pydantic's wording speaks of Python types; these speak of YAML.
_WORDING = {
    "missing": "is missing; add it",
    "tuple_type": "should be a list",
    "model_type": "should be a mapping of keys to values",
    "dict_type": "should be a mapping of keys to values",
    "too_short": "is empty; give at least one value",
    "too_long": "has {actual_length} values; give at most {max_length}",
    "string_pattern_mismatch": "should match the pattern {pattern}",
}


class LocatedError(ValueError):
    """A validator's complaint about the value at ``loc``, a path relative to the model that raises it."""

    def __init__(self, loc: Loc, message: str) -> None:
        super().__init__(message)
        self.loc = loc


class YamlRecord(Record):
    """A record that is written by hand in YAML: it answers an unknown key with the known ones."""

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise LocatedError((key,), f"is an unknown key; use one of {', '.join(cls.model_fields)}")
        return data


def require_no_duplicates(record: YamlRecord, *keys: str) -> None:
    """Raise a `LocatedError` for the first of the lists ``keys`` that holds equal values."""
    for key in keys:
        values = getattr(record, key)
        if len(set(values)) < len(values):
            raise LocatedError((key,), "holds a value twice; remove one")


def load(model: type[Model], path: Path, context: Any = None) -> Model:
    """Read and validate ``path``; ``context`` is for the validators of ``model``.

    Raises:
        SpecError: unreadable, not YAML, not plain data, or refused by ``model``.
    """
    tree = _Tree(path)
    data = tree.read()
    try:
        return model.model_validate(data, strict=True, context=context)
    except ValidationError as error:
        tree.refuse(*_first_mistake(error))


def _first_mistake(error: ValidationError) -> tuple[Loc, str]:
    first = error.errors(include_url=False)[0]
    loc = tuple(part for part in first["loc"] if part != "[key]")
    context = first.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, LocatedError):
        return loc + cause.loc, str(cause)
    if isinstance(cause, ValueError):
        return loc, str(cause)
    if first["type"] in _WORDING:
        return loc, _WORDING[first["type"]].format(**context)
    message = first["msg"].removeprefix("Input ")
    return loc, f"{message}, but is {_short(first['input'])}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class _Tree:
    """The data of one file, and the line (from 1) of each path in it."""

    path: Path
    lines: dict[Loc, int] = field(default_factory=dict)
    visits: int = 0
    scalars: yaml.constructor.SafeConstructor = field(default_factory=yaml.constructor.SafeConstructor)

    def refuse(self, loc: Loc, message: str, line: int | None = None) -> NoReturn:
        """Raise for the value at ``loc``, at the line of its nearest ancestor that has one."""
        known = loc
        while known and known not in self.lines:
            known = known[:-1]
        where = f"{self.path} line {line or self.lines.get(known, 1)}"
        key = ".".join(map(str, loc))
        raise SpecError(f"{where}: {key} {message}" if key else f"{where}: {message}")

    def read(self) -> dict[str, Any]:
        """The file as plain data, lists as tuples."""
        text = self._text()
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = ", ".join(filter(None, (error.context, error.problem)))
            self.refuse((), f"is not valid YAML: {problem}; correct it", mark.line + 1 if mark else None)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, cast(int, error.position)) + 1
            self.refuse((), "holds a control character; remove it", line)
        except (RecursionError, ValueError) as error:
            self.refuse((), f"is not valid YAML: {type(error).__name__} while reading; simplify it")
        if not isinstance(node, yaml.MappingNode):
            self.refuse((), "should be a mapping of keys to values; start with 'name: ...'")
        return cast(dict[str, Any], self._value(node, ()))

    def _text(self) -> str:
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise SpecError(f"{self.path}: is no regular file, so it may never end; give the path of a YAML file")
            if status.st_size > MAX_FILE_BYTES:
                raise SpecError(f"{self.path}: is larger than {MAX_FILE_BYTES} bytes; use a grid or a random draw")
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise SpecError(f"{self.path}: is not UTF-8 text; save it as UTF-8") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SpecError(f"{self.path}: cannot be read ({reason}); check the path") from None

    def _value(self, node: yaml.Node, loc: Loc) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(loc, line)
        self.visits += 1
        if self.visits > MAX_VALUES or len(loc) > MAX_DEPTH:
            self.refuse(loc[:4], "expands to too many values or too many levels; use fewer aliases", line)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return tuple(self._value(child, (*loc, i)) for i, child in enumerate(node.value))
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN_TAGS:
            tag = node.tag.replace(_TAG, "!!")
            self.refuse(loc, f"has the YAML type {tag}, which is not accepted; write plain or quoted text", line)
        return self._scalar(node, loc, line)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        inherited: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, child in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _TAG + "merge":
                inherited = {**self._merged(child, loc), **inherited}
                continue
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                self.refuse(loc, "has a key that is not text; put it in quotes", line)
            if key in own:
                self.refuse((*loc, key), "is given twice; remove one", line)
            self.lines[(*loc, key)] = line
            own[key] = self._value(child, (*loc, key))
        return {**inherited, **own}

    def _merged(self, node: yaml.Node, loc: Loc) -> dict[str, Any]:
        """The value of a ``<<`` key: a mapping or a list of mappings, of which the first wins."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in parts:
            value = self._value(part, (*loc, "<<"))
            if not isinstance(value, dict):
                self.refuse(loc, "merges (<<) something that is not a mapping", node.start_mark.line + 1)
            merged = {**value, **merged}
        return merged

    def _scalar(self, node: yaml.ScalarNode, loc: Loc, line: int) -> Any:
        try:
            value = self.scalars.construct_object(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            self.refuse(loc, f"is {_short(node.value)}, which is not a number", line)
        if isinstance(value, float) and not math.isfinite(value):
            self.refuse(loc, f"is {node.value}; give a finite number", line)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            self.refuse(loc, f"is {_short(node.value)}; give a number below 2^63", line)
        return value
