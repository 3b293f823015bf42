"""Does a stored model answer every question? Its file may be damaged, and no pick may hang or end in nonsense."""

import re
from typing import Any

from tilearena.picker.model import LEAF, Model
from tilearena.picker.terms import SHAPES, Term
from tilearena.records import Template

#: What each term but those of `SHAPES` is of: layouts of a tile (M, N), a cluster (M, N) and the blocks that share one.
NUMBERS = {"tiles": 2, "useful": 2, "full": 6, "busy": 10}
#: Of a term; with larger ones its value might not fit 64 bits.
MOST = 1 << 10
#: What the header's tables hold: indices of 16 bits, and thresholds of 64.
MOST_TEMPLATES, MOST_THRESHOLD = 1 << 15, 1 << 63
LABEL = re.compile(r"[a-z0-9_/]{1,100}")


def fault(model: Model, names: dict[str, str]) -> str:
    """What is wrong with ``model``, which is to be for ``names`` (device, space, dtype, protocol); empty if nothing is.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is so wrong that it cannot be looked at.
    """
    checks = {
        "about": _is_about(model.about, names),
        "sm_count": _within(model.sm_count, 1, MOST),
        "list of templates": 0 < len(model.templates) <= MOST_TEMPLATES
        and all(_is_of(t, names) for t in model.records),
        "list of terms": all(map(_is_term, model.terms)),
        "list of lists": all(_is_list(list_, len(model.templates)) for list_ in model.lists),
        "tree": _is_tree(model),
    }
    return next((f"its {part} is wrong" for part, sound in checks.items() if not sound), "")


def _within(number: object, low: int, end: int) -> bool:
    return type(number) is int and low <= number < end


def _is_about(about: dict[str, Any], names: dict[str, str]) -> bool:
    """Of these very names; what a comment of the header quotes may not end its line, nor go on in the next one."""
    parts = about["trained_on"]
    quoted = [*names.values(), about["product"], *(part[key] for part in parts for key in ("spec", "fingerprint"))]
    same = all(about[key] == value for key, value in names.items())
    plain = all(text.isprintable() and "\\" not in text for text in quoted)
    return same and plain and all(_within(part["n_problems"], 0, 1 << 63) for part in parts)


def _is_of(template: Template, names: dict[str, str]) -> bool:
    shapes = (*template.threadblock, *template.warp, *template.instruction, *template.cluster)
    named = template.dtype == names["dtype"] and LABEL.fullmatch(template.label) is not None
    return named and all(_within(extent, 1, 1 << 13) for extent in shapes)


def _is_term(term: Term) -> bool:
    name, numbers = term
    if name in SHAPES:
        return not numbers
    layouts = [numbers[i : i + 5] for i in range(0, len(numbers), 5)] if name == "busy" else []
    divisible = all(tm * tn >= blocks for tm, tn, _, _, blocks in layouts if len(numbers) == NUMBERS[name])
    return len(numbers) == NUMBERS.get(name) and all(_within(n, 1, MOST + 1) for n in numbers) and divisible


def _is_list(list_: tuple[int, ...], n_templates: int) -> bool:
    return bool(list_) and all(_within(index, 0, n_templates) for index in list_)


def _is_tree(model: Model) -> bool:
    """Whether every way through it leads forward, and so to a leaf."""
    n_nodes = len(model.term)
    return 0 < n_nodes == len(model.threshold) == len(model.next) and all(
        _within(threshold, -MOST_THRESHOLD, MOST_THRESHOLD)
        and _within(term, LEAF, len(model.terms))
        and (_within(next_, 0, len(model.lists)) if term == LEAF else _within(next_, at + 2, n_nodes))
        for at, (term, threshold, next_) in enumerate(zip(model.term, model.threshold, model.next, strict=True))
    )
