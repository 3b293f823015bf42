"""The other side of `tilearena.baselines.nvmmh`: a process that asks nvMatmulHeuristics, which may crash as it ends.

Questions come as JSON on standard input, answers leave as one NumPy array on standard output; whatever the library
prints goes to standard error. The library is proprietary and never part of this project: docs/nvmmh.md.
"""

import json
import os
import sys
from importlib import import_module
from io import BytesIO
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

#: A, B and D are of 8 bits, computed with and stored as 32 bits ("Supported precisions" in nvMatmulHeuristics.h).
PRECISION = "BII"
#: Most configurations of one answer; no answer for int8 had more than 28.
MOST = 64
#: One kernel configuration: of which question and which of its problems, its shapes in elements (cta M, N, K; warp
#: M, N), the cluster in threadblocks (M, N), and the library's estimate.
CONFIGURATION = np.dtype(
    [
        ("question", np.int32),
        ("problem", np.int32),
        ("tile", np.int32, 3),
        ("warp", np.int32, 2),
        ("stages", np.int32),
        ("split_k", np.int32),
        ("swizzle", np.int32),
        ("cluster", np.int32, 2),
        ("runtime_s", np.float64),
    ]
)


class Question(TypedDict):
    """Problems (m, n, k), and names of the library's enumerations of targets and matrix layouts."""

    target: str
    layout: str
    problems: list[list[int]]


def ask(gpu: str, questions: list[Question], alive: list[Any]) -> npt.NDArray[Any]:
    """What the library proposes, best first for each problem: `CONFIGURATION` [R], questions and problems in order.

    The flag is the one with which CUTLASS asks (``cutlass_library/heuristics_provider.py``, 4.2). What has a destructor
    is put in ``alive``.
    """
    library = import_module("nvMatmulHeuristics")
    rows = []
    for number, question in enumerate(questions):
        layout = library.NvMatmulHeuristicsMatmulLayout[question["layout"]]
        interface = library.NvMatmulHeuristicsInterfaceEx(
            backend=library.NvMatmulHeuristicsTarget[question["target"]],
            flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
            load_discovery_implicitly=False,
            gpu=library.NvMatmulHeuristicsNvidiaGpu[gpu],
        )
        alive.append(interface)
        interface.loadInternalDiscoverySet(layout, PRECISION)
        for index, (m, n, k) in enumerate(question["problems"]):
            problem = interface.makeNvMatmulHeuristicsProblem(m, n, k, layout, 1)
            rows += [(number, index, *_row(found)) for found in interface.get(problem, MOST, PRECISION)]
    return np.array(rows, dtype=CONFIGURATION)


def _row(found: dict[str, Any]) -> tuple[Any, ...]:
    c = found["kernel"]
    tile, warp = (c.cta_tile_m, c.cta_tile_n, c.cta_tile_k), (c.warp_tile_m, c.warp_tile_n)
    return tile, warp, c.stages, c.split_k, c.swizzle_factor, (c.cluster_m, c.cluster_n), found["runtime"]


def main() -> None:
    """Answer the questions of standard input, and leave without running a destructor."""
    alive: list[Any] = []
    code = 1
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        try:
            np.save(answer := BytesIO(), ask(**json.load(sys.stdin), alive=alive))  # NumPy cannot write to a pipe
            out.write(answer.getbuffer())
            code = 0
        except Exception as error:  # the parent tells it in a sentence
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


if __name__ == "__main__":
    main()
