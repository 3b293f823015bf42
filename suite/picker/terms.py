"""What a picker's tree looks at: whole numbers that follow from m, n and k.

A term is a name and whole numbers, and stands for an expression in integer arithmetic that means the same in Python, in
NumPy (int64) and, with ``/`` for ``//``, in C++: all are positive and stay below 2^63 for extents up to 2^20. So a tree
takes the same way in all three.
"""

from collections.abc import Iterable
from itertools import combinations

from tilearena.feasible import MAX_GRID_Y, PARTIALS_BYTES, SEMAPHORE_BYTES
from tilearena.records import K_ALIGNMENT, MAX_EXTENT, Template

#: A name, and the numbers that it is of: a tile, or two of them.
Term = tuple[str, tuple[int, ...]]

#: Terms of shapes alone. ``x & -x`` is the largest power of two that divides x: where rows start relative to sectors.
SHAPES = {
    "m": "m",
    "n": "n",
    "k": "k",
    "mn": "m * n",
    "mk": "m * k",
    "nk": "n * k",
    "mnk": "m * n * k",
    "operands": "(m + n) * k",
    "power_of_m": "m & -m",
    "power_of_n": "n & -n",
    "power_of_k": "k & -k",
    "aspect": f"m * {1 << 10} // n",
    "intensity": "m * n // (m + n)",
    "depth": f"k * {1 << 10} // (m + n)",
}
#: Fractions are in units of 1/1024.
ONE = 1 << 10
#: Numbers of threadblocks of one tile that an SM may hold at the same time: ``full`` is looked at for each.
RESIDENT, RESIDENT_OF_FEW = (1, 2), (1, 2, 4)
#: So many pairs of a tile and a split of K are compared with one another; of more, each with the last alone.
FEW = 4


def candidates(templates: Iterable[Template]) -> list[Term]:
    """All terms that a tree which chooses among ``templates`` may look at."""
    shares = sorted({(t.threadblock[0], t.threadblock[1], t.split_k) for t in templates})
    tiles = sorted({(tm, tn) for tm, tn, _ in shares})
    found: list[Term] = [(name, ()) for name in SHAPES]
    found += [(name, tile) for tile in tiles for name in ("tiles", "useful")]
    few = len(shares) <= FEW
    found += [("full", (*share, blocks)) for share in shares for blocks in (RESIDENT_OF_FEW if few else RESIDENT)]
    pairs = combinations(shares, 2) if few else ((share, shares[-1]) for share in shares[:-1])
    return found + [("busy", (*a, *b)) for a, b in pairs]


def expression(term: Term, sm_count: int) -> str:
    """The term as Python on a device of ``sm_count`` SMs.

    ``tiles``: tiles of D. ``useful``: share of their area that lies in D. ``full``: share of the places of all waves
    that are taken, where each tile has ``split`` threadblocks and an SM holds ``blocks`` of them. ``busy``: work of the
    busiest SM with the one tile and split, relative to the other.
    """
    name, numbers = term
    if name in SHAPES:
        return f"({SHAPES[name]})"
    tm, tn, *rest = numbers
    tiles = _tiles(tm, tn)
    if name == "tiles":
        return tiles
    if name == "useful":
        return f"(m * n * {ONE} // ({tiles} * {tm * tn}))"
    if name == "full":
        split, blocks = rest
        places = sm_count * blocks
        return f"({tiles} * {split * ONE} // ({_ceil(f'{tiles} * {split}', places)} * {places}))"
    if name == "busy":
        split, *other = rest
        return f"({_busy(tm, tn, split, sm_count)} * {ONE} // ({_busy(*other, sm_count)}))"
    raise ValueError(f"no term named {name!r}")


def conditions(template: Template) -> list[str]:
    """What must all be true of a problem for the template to run it, as Python; empty where it can run each.

    This is `tilearena.feasible.rejection`, but for what depends on the device alone and for the memory that
    measuring needs.
    """
    tm, tn, tk = template.threadblock
    found = []
    if template.generator == "cutlass2" and -(-MAX_EXTENT // tn) > MAX_GRID_Y:
        found.append(f"{_ceil('n', tn)} <= {MAX_GRID_Y}")
    split = template.split_k
    if split > 1:
        steps = _ceil("k", tk)
        found.append(f"{_ceil(steps, split)} * {split - 1} < {steps}")
        if template.adding:
            found.append(f"k % {K_ALIGNMENT[template.dtype] * split} == 0")
        else:
            each, there = (4, SEMAPHORE_BYTES) if template.generator == "cutlass2" else (4 * tm * tn, PARTIALS_BYTES)
            found.append(f"{_tiles(tm, tn)} <= {there // each}")
    return found


def as_cpp(python: str) -> str:
    """The same expression in C++."""
    return python.replace("//", "/")


def _ceil(extent: str, size: int) -> str:
    return f"(({extent} + {size - 1}) // {size})" if size > 1 else extent


def _tiles(tm: int, tn: int) -> str:
    return f"({_ceil('m', tm)} * {_ceil('n', tn)})"


def _busy(tm: int, tn: int, split: int, sm_count: int) -> str:
    """Area of all tiles that the busiest SM works on, each for its share of K."""
    return f"{_ceil(f'{_tiles(tm, tn)} * {split}', sm_count)} * {tm * tn // split}"
