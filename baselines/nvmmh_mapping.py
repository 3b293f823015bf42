"""Kernel configurations that nvMatmulHeuristics proposes -> places of the templates of a space; pure.

A configuration stands for the templates of its kind that are nearest to it and can run: by tile first, then by what is
shared, and so on (`nearness`). Nothing here was tuned by measured times.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.recfunctions import structured_to_unstructured

from tilearena.records import Generator, Template
from tilearena.table import Floats, Ints

#: (generator, swapped)
Kind = tuple[Generator, bool]
Configurations = npt.NDArray[Any]
#: Costs of templates that no configuration stands for, and of those that cannot run; the others cost their place.
UNMATCHED, INFEASIBLE = 1e3, 1e6


def best_first(proposed: Configurations) -> Configurations:
    """Sorted by problem and then by estimate, without changing the order of any answer.

    The library's own order is not quite that of its estimates, so a proposal counts with the largest one up to it.
    """
    answers = np.flatnonzero(np.diff(proposed["problem"]) | np.diff(proposed["question"])) + 1
    estimate_s = np.concatenate([np.maximum.accumulate(answer) for answer in np.split(proposed["runtime_s"], answers)])
    return proposed[np.lexsort((proposed["question"], estimate_s, proposed["problem"]))]


def nearness(kernels: Configurations, kind: Kind, templates: Sequence[Template]) -> Ints:
    """Int64 [R, T]: 0 for the nearest templates, equal where equally near, T where the template is of another kind.

    Compared are, each only where all before are equal and extents by their logarithms: the tile's M, N and K; its area;
    split-K; stages; the cluster; the warp's M and N (cutlass2, others have none); the swizzle; stream-K, which the
    library does not propose.
    """
    same = np.array([(t.generator, t.swapped) == kind for t in templates])
    own = [t for t in templates if (t.generator, t.swapped) == kind]
    theirs = np.log2([(*t.threadblock, t.split_k, *t.cluster, *t.warp[:2], t.swizzle) for t in own])
    asked = structured_to_unstructured(kernels[["tile", "split_k", "cluster", "warp", "swizzle"]])
    apart = theirs - np.log2(asked)[:, None, :]  # [R, own, 9]
    far = np.abs(apart)
    stages = np.abs(np.array([t.stages for t in own]) - kernels["stages"][:, None])
    warp = far[:, :, 6:8].sum(axis=2) * (kind[0] == "cutlass2")
    tile, area, cluster = far[:, :, :3].sum(axis=2), np.abs(apart[:, :, :2].sum(axis=2)), far[:, :, 4:6].sum(axis=2)
    stream_k = np.broadcast_to([t.stream_k for t in own], stages.shape)
    criteria = np.stack([tile, area, far[:, :, 3], stages, cluster, warp, far[:, :, 8], stream_k], axis=2)
    order = np.full((len(kernels), len(templates)), len(templates), dtype=np.int64)
    # equal distances that are sums of other logarithms differ in their last bits
    order[:, same] = [np.unique(each, axis=0, return_inverse=True)[1].reshape(-1) for each in criteria.round(9)]
    return order


def places(order: Ints, runs: npt.NDArray[np.bool_]) -> Floats:
    """Costs [T] of one problem.

    A template costs the place of the first proposal that it is the nearest to among those that run. After all
    these come, in the order of nearness to the first proposal of their kind, the other ones, and at last those that
    cannot run.

    Args:
        order: int64 [R, T], the `nearness` of the proposals, best first.
        runs: [T], whether the template runs the problem.
    """
    other_kind = order.shape[1]
    feasible = np.where(runs, order, other_kind)
    nearest = (feasible == feasible.min(axis=1, keepdims=True)) & (feasible < other_kind)
    first_of_kind = (order < other_kind).argmax(axis=0)
    behind = np.take_along_axis(order, first_of_kind[None, :], axis=0)[0]
    costs: Floats = np.where(nearest.any(axis=0), nearest.argmax(axis=0), UNMATCHED + behind)
    costs[~runs] = INFEASIBLE + behind[~runs]
    return costs
