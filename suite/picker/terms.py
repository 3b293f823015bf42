"""What a picker's tree looks at: whole numbers that follow from m, n and k.

A term is a name and whole numbers, and stands for an expression in integer arithmetic that means the same in Python, in
NumPy (int64) and, with ``/`` for ``//``, in C++: all are positive and stay below 2^63 for extents up to 2^20. So a tree
takes the same way in all three.
"""

from collections.abc import Iterable
from itertools import combinations

from tilearena.feasible import BARRIERS_BYTES, MAX_GRID_Y, PARTIALS_BYTES, SEMAPHORE_BYTES
from tilearena.records import MAX_EXTENT, Template

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
#: Numbers of threadblocks that an SM may hold at the same time: ``full`` is looked at for each.
RESIDENT = (1, 2)
#: So many of the best templates' layouts are compared with one another, the others with the best one's alone.
COMPARED = 8


def candidates(templates: Iterable[Template]) -> list[Term]:
    """All terms that a tree which chooses among ``templates``, the most useful ones first, may look at."""
    layouts = list(dict.fromkeys((*t.threadblock[:2], *t.cluster, t.split_k) for t in templates))
    tiles = list(dict.fromkeys(layout[:2] for layout in layouts))
    pairs = [*combinations(layouts[:COMPARED], 2), *((layouts[0], layout) for layout in layouts[COMPARED:])]
    return [
        *((name, ()) for name in SHAPES),
        *((name, tile) for tile in tiles for name in ("tiles", "useful")),
        *(("full", (*layout, blocks)) for layout in layouts for blocks in RESIDENT),
        *(("busy", (*a, *b)) for a, b in pairs),
    ]


def expression(term: Term, sm_count: int) -> str:
    """The term as Python on a device of ``sm_count`` SMs.

    ``tiles``: tiles of D. ``useful``: share of their area that lies in D. ``full``: share of the places of all waves
    that are taken where an SM holds some blocks. ``busy``: area that the busiest SM works on with one layout, each tile
    for its share of K, relative to another layout. A layout is a tile, a cluster, and the blocks that share a tile.
    """
    name, numbers = term
    if name in SHAPES:
        return f"({SHAPES[name]})"
    if name == "tiles":
        return _tiles(*numbers)
    if name == "useful":
        tm, tn = numbers
        return f"(m * n * {ONE} // ({_tiles(tm, tn)} * {tm * tn}))"
    if name == "full":
        blocks, places = _blocks(*numbers[:-1]), sm_count * numbers[-1]
        return f"({blocks} * {ONE} // ({_ceil(blocks, places)} * {places}))"
    if name == "busy":
        half = len(numbers) // 2
        return f"({_busy(sm_count, *numbers[:half])} * {ONE} // ({_busy(sm_count, *numbers[half:])}))"
    raise ValueError(f"no term named {name!r}")


def conditions(template: Template) -> list[str]:
    """What must all be true of a problem for the template to run it, as Python; empty where it can run each.

    This is `tilearena.feasible.rejection`, but for what depends on the device alone and for the memory that
    measuring needs.
    """
    tm, tn, tk = template.threadblock
    found = []
    axis, along_y = ("m", tm) if template.swapped else ("n", tn)
    if template.schedule in ("multistage", "warp_specialized") and -(-MAX_EXTENT // along_y) > MAX_GRID_Y:
        found.append(f"{_ceil(axis, along_y)} <= {MAX_GRID_Y}")
    split, steps = template.split_k, _ceil("k", tk)
    if split > 1 and (template.adding or template.generator == "cutlass2"):
        found.append(f"{_ceil(steps, split)} * {split - 1} < {steps}")
        if not template.adding:
            found.append(f"{_tiles(tm, tn)} <= {SEMAPHORE_BYTES // 4}")
    elif split > 1:
        whole, most = _blocks(tm, tn, *template.cluster, 1), (PARTIALS_BYTES - BARRIERS_BYTES) // (4 * tm * tn)
        found += [f"{steps} >= {split}", f"{whole} <= {most}"]
    return found


def as_cpp(python: str) -> str:
    """The same expression in C++."""
    return python.replace("//", "/")


def _ceil(extent: str, size: int) -> str:
    return f"(({extent} + {size - 1}) // {size})" if size > 1 else extent


def _tiles(tm: int, tn: int) -> str:
    return f"({_ceil('m', tm)} * {_ceil('n', tn)})"


def _blocks(tm: int, tn: int, cluster_m: int, cluster_n: int, split: int) -> str:
    """Threadblocks; clusters are whole."""
    whole = _tiles(tm * cluster_m, tn * cluster_n)
    return f"({whole} * {factor})" if (factor := cluster_m * cluster_n * split) > 1 else whole


def _busy(sm_count: int, tm: int, tn: int, cluster_m: int, cluster_n: int, split: int) -> str:
    return f"{_ceil(_blocks(tm, tn, cluster_m, cluster_n, split), sm_count)} * {tm * tn // split}"
