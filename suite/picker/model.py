"""A picker as it is stored: JSON text, and the microseconds in which it answers. Needs neither NumPy nor a GPU."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tilearena.errors import SpecError
from tilearena.picker import terms
from tilearena.picker.terms import Term
from tilearena.records import Template

SCHEMA_VERSION = 1
MODELS = Path(__file__).parent / "models"
#: Of a node that has no children.
LEAF = -1

Evaluate = Callable[[int, int, int], int]


@dataclass(frozen=True)
class Model:
    """A binary decision tree over terms of m, n and k whose leaves are short lists of templates.

    Node i asks whether ``terms[term[i]]`` is at most ``threshold[i]``; yes goes on with node i + 1, no with
    ``next[i]``. Of a leaf (``term[i]`` is -1) ``next[i]`` is an index of ``lists``, and the first template of that list
    which can run the problem is picked. ``about`` says what the model is for and what it was trained on.
    """

    about: dict[str, Any]
    sm_count: int
    templates: tuple[dict[str, Any], ...]
    terms: tuple[Term, ...]
    lists: tuple[tuple[int, ...], ...]
    term: tuple[int, ...]
    threshold: tuple[int, ...]
    next: tuple[int, ...]

    @cached_property
    def records(self) -> tuple[Template, ...]:
        """The templates."""
        return tuple(Template.model_validate(template) for template in self.templates)

    @property
    def trained_on(self) -> list[dict[str, Any]]:
        """The recordings: ``spec``, ``fingerprint`` and ``n_problems`` of each."""
        return list(self.about["trained_on"])

    @cached_property
    def _nodes(self) -> list[tuple[Evaluate | None, int, int]]:
        asked = [_compiled(terms.expression(term, self.sm_count)) for term in self.terms]
        nodes = zip(self.term, self.threshold, self.next, strict=True)
        return [(None if t == LEAF else asked[t], threshold, next_) for t, threshold, next_ in nodes]

    @cached_property
    def _lists(self) -> list[list[tuple[Evaluate | None, int]]]:
        conditions = [" and ".join(terms.conditions(template)) for template in self.records]
        can_run = [_compiled(condition) if condition else None for condition in conditions]
        return [[(can_run[index], index) for index in list_] for list_ in self.lists]

    def index(self, m: int, n: int, k: int) -> int:
        """Index of the picked template; -1 where none of the list can run the problem, whose extents must be valid."""
        nodes = self._nodes
        at = 0
        evaluate, threshold, next_ = nodes[0]
        while evaluate is not None:
            at = at + 1 if evaluate(m, n, k) <= threshold else next_
            evaluate, threshold, next_ = nodes[at]
        for can_run, index in self._lists[next_]:
            if can_run is None or can_run(m, n, k):
                return index
        return -1

    def text(self) -> str:
        """As JSON, a line for each part."""
        parts = {
            "schema_version": SCHEMA_VERSION,
            "about": self.about,
            "sm_count": self.sm_count,
            "templates": self.templates,
            "terms": [[name, *numbers] for name, numbers in self.terms],
            "lists": self.lists,
            "term": self.term,
            "threshold": self.threshold,
            "next": self.next,
        }
        lines = [f"{json.dumps(key)}: {json.dumps(part, separators=(',', ':'))}" for key, part in parts.items()]
        return "{" + ",\n ".join(lines) + "}\n"


def read(path: Path) -> Model:
    """A stored model.

    Raises:
        SpecError: it is none, or of another schema version.
    """
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = raw.pop("schema_version")
        if version == SCHEMA_VERSION:
            raw["sm_count"] = int(raw["sm_count"])
            raw["terms"] = tuple((name, tuple(map(int, numbers))) for name, *numbers in raw["terms"])
            raw["lists"] = tuple(map(tuple, raw["lists"]))
            for key in ("templates", "term", "threshold", "next"):
                raw[key] = tuple(raw[key])
            return Model(**raw)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"{path}: no picker's model ({error!r}); install tilearena again") from None
    raise SpecError(f"{path}: schema version {ascii(version)[:40]}, this tilearena reads {SCHEMA_VERSION}; update it")


def _compiled(expression: str) -> Evaluate:
    """A function of m, n and k; expressions are those of `tilearena.picker.terms` alone, never text of a file."""
    function: Evaluate = eval(f"lambda m, n, k: {expression}", {})
    return function
