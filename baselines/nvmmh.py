"""NVIDIA's own choice: nvMatmulHeuristics proposes kernel configurations, which are mapped to the task's templates.

The library is proprietary, optional (``tilearena[nvmmh]``) and asked in a process of its own. It serves s8 on the GPUs
that it describes. docs/nvmmh.md says how it is asked, how its answers are mapped, and what it cannot do.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from typing import Any

import numpy as np
from numpy.lib.recfunctions import structured_to_unstructured

from tilearena.baselines.nvmmh_child import Question
from tilearena.baselines.nvmmh_mapping import Configurations, Kind, best_first, nearness, places
from tilearena.errors import PredictorError
from tilearena.feasible import rejection
from tilearena.plugins import Declined
from tilearena.records import Problem
from tilearena.table import Floats, Ints, Table, Task

DISTRIBUTION, VERSION = "nvidia-matmul-heuristics", "0.1.0.27"
#: Product names of the CUDA driver -> names in the library's list of GPUs, of sm_80 to sm_90.
GPUS = {
    "NVIDIA A100-SXM4-80GB": "A100_SXM_80GB",
    "NVIDIA A100 80GB PCIe": "A100_PCIE_80GB",
    "NVIDIA A30": "A30_PCIE",
    "NVIDIA A10": "A10_PCIE",
    "NVIDIA A40": "A40_PCIE",
    "NVIDIA GeForce RTX 3090": "RTX_3090",
    "NVIDIA RTX A6000": "RTX_A6000",
    "NVIDIA L4": "L4",
    "NVIDIA L20": "L20",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA GeForce RTX 4090": "RTX_4090",
    "NVIDIA RTX 6000 Ada Generation": "RTX_6000_ADA",
    "NVIDIA H100 80GB HBM3": "H100_SXM",
    "NVIDIA H100 PCIe": "H100_PCIE",
    "NVIDIA H100 NVL": "H100_NVL",
    "NVIDIA H200": "H200_SXM",
    "NVIDIA H20": "H20_SXM",
}
#: Target and layout with which the library is asked about each kind of templates. T is a row-major and N a column-major
#: operand, the last word is of D, as CUTLASS 4.2 translates its layouts (``cutlass_library/heuristics_provider.py``).
#: A swapped kernel computes the transpose of D. Where estimates are equal, the first kind leads.
ASKED: dict[Kind, tuple[str, str]] = {
    ("cutlass3", False): ("CUTLASS3", "TN_ROW_MAJOR"),
    ("cutlass3", True): ("CUTLASS3", "TN_COL_MAJOR"),
    ("cutlass2", False): ("CUTLASS", "TN_ROW_MAJOR"),
}
#: What tells one proposed kernel from another.
KERNEL = ["question", "tile", "warp", "stages", "split_k", "swizzle", "cluster"]


class Nvmmh:
    """Ranks templates by the place of the first proposal that stands for them."""

    name = "nvmmh"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Nothing: what the library knows of a GPU it brings along."""

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: `nvmmh_mapping.places`; NaN for a problem without any proposal.

        Raises:
            Declined: not s8, not a whole GPU that the library describes, or the library is missing.
            PredictorError: the library is of another version, or ended badly.
        """
        kinds = [kind for kind in ASKED if kind in {(t.generator, t.swapped) for t in task.templates}]
        proposed = best_first(proposals(gpu_name(task), kinds, problems))
        # thousands of problems share some hundred kernels
        kernels = structured_to_unstructured(proposed[KERNEL])
        _, rows, kernel = np.unique(kernels, axis=0, return_index=True, return_inverse=True)
        order = np.empty((len(rows), len(task.templates)), dtype=np.int64)
        for number in np.unique(proposed["question"]):
            own = proposed["question"][rows] == number
            order[own] = nearness(proposed[rows[own]], kinds[number], task.templates)
        ends = np.searchsorted(proposed["problem"], np.arange(len(problems)), side="right")
        costs = np.full((len(problems), len(task.templates)), np.nan)
        for p, own in enumerate(np.split(kernel.reshape(-1), ends[:-1])):
            if len(own):
                costs[p] = places(order[own], _runs(problems[p].tolist(), task))
        return costs


def gpu_name(task: Task) -> str:
    """What the library calls the task's GPU.

    Raises:
        Declined: it serves no such task.
    """
    device = task.device
    if task.dtype != "s8":
        raise Declined(f"nvMatmulHeuristics is asked about s8 alone; it has no name for {task.dtype}")
    if device.product not in GPUS:
        raise Declined(f"nvMatmulHeuristics describes no {device.product}; docs/nvmmh.md lists what it does")
    if device.sm_total is not None:
        raise Declined(f"nvMatmulHeuristics describes a whole {device.product}, not {device.sm_count} of its SMs")
    return GPUS[device.product]


def proposals(gpu: str, kinds: list[Kind], problems: Ints) -> Configurations:
    """`nvmmh_child.CONFIGURATION` [R] in terms of D, by number of the kind (``question``) and by problem.

    Raises:
        Declined: the library is missing. PredictorError: it is of another version, or ended badly.
    """
    questions: list[Question] = []
    for kind in kinds:
        target, layout = ASKED[kind]
        asked = problems[:, [1, 0, 2]] if kind[1] else problems
        questions.append({"target": target, "layout": layout, "problems": asked.tolist()})
    found = _ask({"gpu": gpu, "questions": questions})
    swapped = np.array([kind[1] for kind in kinds])[found["question"]]
    for field in ("tile", "warp", "cluster"):
        found[field][swapped, :2] = found[field][swapped, 1::-1]
    return found


def _ask(job: dict[str, Any]) -> Configurations:
    install = f"run: pip install 'tilearena[nvmmh]', which brings {VERSION}"
    try:
        if (installed := version(DISTRIBUTION)) != VERSION:
            raise PredictorError(
                f"{DISTRIBUTION} {installed} is installed, whose answers are not known here; {install}"
            )
    except PackageNotFoundError:
        raise Declined(f"{DISTRIBUTION} is not installed (mind its licence); {install}") from None
    child = subprocess.run(
        [sys.executable, "-P", "-m", "tilearena.baselines.nvmmh_child"],
        input=json.dumps(job).encode(),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # it would ask the GPU that is here
        capture_output=True,
    )
    if child.returncode:
        last = (child.stderr.decode(errors="replace").split("\n")[-2:-1] or [""])[0]
        raise PredictorError(f"nvMatmulHeuristics ended with exit code {child.returncode} ({last}); {install}")
    answer: Configurations = np.load(BytesIO(child.stdout), allow_pickle=False)
    return answer


def _runs(problem: list[int], task: Task) -> Any:
    m, n, k = problem
    described = Problem(dtype=task.dtype, m=m, n=n, k=k)
    return np.array([rejection(described, template, task.device) is None for template in task.templates])
