"""A tree -> the model that is stored: the same picks from less, without rankings that no pick needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilearena.picker import terms
from tilearena.picker.grow import Tree
from tilearena.picker.model import LEAF, Model
from tilearena.records import Template
from tilearena.table import Floats


@dataclass(frozen=True)
class _Branch:
    """A node with its two subtrees."""

    term: int
    threshold: int
    yes: "_Branch | tuple[int, ...]"
    no: "_Branch | tuple[int, ...]"


def model_of(tree: Tree, templates: Sequence[Template], sm_count: int, about: dict[str, Any]) -> Model:
    """The model that picks what ``tree`` ranks first of ``templates`` (T of them) that can run, without the rest."""
    always = [not terms.conditions(template) for template in templates]
    root = _branch(tree, [_list(costs, always) for costs in tree.costs], 0)
    nodes = list(_preorder(root))
    lists = sorted({list_ for *_, list_ in nodes if list_ is not None})
    used = sorted({index for list_ in lists for index in list_})
    asked = sorted({term for term, *_ in nodes if term != LEAF})
    place = {list_: i for i, list_ in enumerate(lists)}
    return Model(
        about=about,
        sm_count=sm_count,
        templates=tuple(templates[i].model_dump(mode="json", exclude_defaults=True) for i in used),
        terms=tuple(tree.terms[i] for i in asked),
        lists=tuple(tuple(used.index(i) for i in list_) for list_ in lists),
        term=tuple(LEAF if term == LEAF else asked.index(term) for term, *_ in nodes),
        threshold=tuple(threshold for _, threshold, *_ in nodes),
        next=tuple(next_ if list_ is None else place[list_] for *_, next_, list_ in nodes),
    )


def _list(costs: Floats, always: Sequence[bool]) -> tuple[int, ...]:
    """Templates from the cheapest up to the first that can run every problem."""
    order = np.argsort(costs, kind="stable").tolist()
    end = next((place for place, index in enumerate(order) if always[index]), len(order))
    return tuple(order[: end + 1])


def _branch(tree: Tree, lists: Sequence[tuple[int, ...]], at: int) -> _Branch | tuple[int, ...]:
    """The subtree at a node; one whose leaves all have the same list is that list."""
    term, threshold, next_ = int(tree.term[at]), int(tree.threshold[at]), int(tree.next[at])
    if term == LEAF:
        return lists[next_]
    yes, no = _branch(tree, lists, at + 1), _branch(tree, lists, next_)
    return yes if isinstance(yes, tuple) and yes == no else _Branch(term, threshold, yes, no)


def _preorder(branch: _Branch | tuple[int, ...], at: int = 0) -> Iterator[tuple[int, int, int, tuple[int, ...] | None]]:
    """Term, threshold and next of each node, which is the ``at``-th and so on; of a leaf its list, too."""
    if isinstance(branch, tuple):
        yield LEAF, 0, 0, branch
        return
    yes = list(_preorder(branch.yes, at + 1))
    next_ = at + 1 + len(yes)
    yield branch.term, branch.threshold, next_, None
    yield from yes
    yield from _preorder(branch.no, next_)
