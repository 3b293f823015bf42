"""nvMatmulHeuristics as a predictor: how its proposals become places, by hand, and how it is asked, with a stand-in.

The tests of the library itself run where the extra ``nvmmh`` is installed.
"""

import os
import re
import sys
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilearena import conformance as rules
from tilearena.baselines import nvmmh
from tilearena.baselines.nvmmh import ASKED, GPUS, VERSION, Nvmmh, gpu_name, proposals
from tilearena.baselines.nvmmh_child import CONFIGURATION, MOST
from tilearena.baselines.nvmmh_mapping import INFEASIBLE, UNMATCHED, Kind, best_first, nearness, places
from tilearena.errors import PredictorError
from tilearena.feasible import rejection
from tilearena.plugins import Declined
from tilearena.records import Problem, Template
from tilearena.spec import load_space
from tilearena.synthetic import DEVICE, extreme_problems, synthetic_task
from tilearena.table import Task

H200 = DEVICE.model_copy(update={
    "slug": "nvidia-h200", "product": "NVIDIA H200", "compute_capability": (9, 0), "sm_count": 132,
    "smem_per_block_bytes": 227 << 10, "smem_per_sm_bytes": 228 << 10,
})  # fmt: skip
CUTLASS2: Kind = ("cutlass2", False)
CUTLASS3: Kind = ("cutlass3", False)
SWAPPED: Kind = ("cutlass3", True)
SHAPES = np.array(list(product((16, 128, 1024, 8192), (256, 1024, 8192, 15360), (512, 4096))))
#: Where the answer to (m, n, k) is a tile of m x n with k for its stages and one warp, to see what was asked.
STANDIN = """
from enum import IntEnum
from types import SimpleNamespace

NvMatmulHeuristicsTarget = IntEnum("Target", "CUTLASS CUTLASS3", start=0)
NvMatmulHeuristicsMatmulLayout = IntEnum("Layout", "TN_ROW_MAJOR TN_COL_MAJOR", start=0)
NvMatmulHeuristicsNvidiaGpu = IntEnum("Gpu", "H200_SXM", start=0)
NvMatmulHeuristicsFlags = IntEnum("Flags", "PERF_MODEL_BASED_AUTO_TUNING", start=0)

class NvMatmulHeuristicsInterfaceEx:
    def __init__(self, backend, flags, load_discovery_implicitly, gpu):
        self.backend, self.loaded = backend, set()

    def loadInternalDiscoverySet(self, layout, precision):
        print("what it prints is no answer")
        self.loaded.add((layout, precision))

    def makeNvMatmulHeuristicsProblem(self, m, n, k, layout, batch):
        return m, n, k, layout

    def get(self, problem, count, precision):
        m, n, k, layout = problem
        assert (layout, precision) in self.loaded and precision == "BII"
        if m == 13:
            raise RuntimeError("unlucky")
        kernel = SimpleNamespace(
            cta_tile_m=m, cta_tile_n=n, cta_tile_k=64, warp_tile_m=m, warp_tile_n=n, stages=k, split_k=1,
            swizzle_factor=1 + layout, cluster_m=1, cluster_n=2 if self.backend else 1)
        return [{"kernel": kernel, "runtime": 1e-6}] * (m != 7)

    def __del__(self):
        import os
        os.abort()
"""


def kernel(tile: tuple[int, int, int], **others: Any) -> np.ndarray:
    """One `CONFIGURATION`, [1]."""
    usual = {"question": 0, "problem": 0, "warp": (64, 64), "stages": 4, "split_k": 1, "swizzle": 1, "cluster": (1, 1)}
    values = {**usual, "runtime_s": 1e-6, "tile": tile, **others}
    assert CONFIGURATION.names
    return np.array([tuple(values[name] for name in CONFIGURATION.names)], dtype=CONFIGURATION)


@cache
def templates(space: str = "paper9") -> tuple[Template, ...]:
    return load_space(space).templates("s8")


def nearest(tile: tuple[int, int, int], kind: Kind = CUTLASS2, space: str = "sm80-wide", **others: Any) -> list[str]:
    """Labels of the templates that are nearest to a configuration."""
    (order,) = nearness(kernel(tile, **others), kind, templates(space))
    return [t.label for t, rank in zip(templates(space), order, strict=True) if rank == 0]


def task(space: str = "paper9", **others: Any) -> Task:
    found = templates(space)
    return replace(synthetic_task(), **{"space": space, "templates": found, "default": 0, "device": H200, **others})


def test_nearest_is_the_same_kernel_where_the_space_has_it():
    assert nearest((128, 128, 64), stages=4) == ["medium/4"]
    assert nearest((128, 128, 64), stages=4, split_k=4) == ["medium/4/k4"]
    assert nearest((128, 128, 64), stages=4, swizzle=4) == ["medium_swizzled/4/z4"]
    own = nearest((128, 256, 128), CUTLASS3, "sm90-native", cluster=(2, 1), stages=4)
    assert own == ["w128x256/4/cooperative/c2x1"]


def test_nearest_counts_the_tile_then_split_k_then_stages():
    assert nearest((128, 128, 64), stages=8, split_k=3) == ["medium/4/k4"]  # 8 stages: 4 is the most; 3 is nearer to 4
    assert nearest((128, 64, 64), warp=(64, 32), stages=5) == ["t128x64/4", "t128x64/6"]  # as near, so both
    assert nearest((512, 128, 64), stages=3) == ["t256x128/3"]
    # two octaves from 128x128 and from 64x64, but of the area of the first
    assert nearest((256, 64, 64), space="paper9", stages=4) == ["medium/4"]


def test_nearest_leaves_the_warp_of_wgmma_and_other_kinds_aside():
    tile, space = (64, 64, 128), "sm90-native"
    assert nearest(tile, CUTLASS3, space, warp=(64, 8), stages=8) == nearest(tile, CUTLASS3, space, stages=8)
    order = nearness(kernel((64, 64, 64)), SWAPPED, templates(space))[0]
    mine = [(t.generator, t.swapped) == SWAPPED for t in templates(space)]
    assert [rank < len(templates(space)) for rank in order] == mine


def test_stream_k_is_behind_the_same_kernel_without():
    order = nearness(kernel((128, 256, 128), cluster=(2, 1)), CUTLASS3, templates("sm90-native"))[0]
    rank = {t.label: rank for t, rank in zip(templates("sm90-native"), order, strict=True)}
    assert 0 == rank["w128x256/4/cooperative/c2x1"] < rank["k128x256/4/cooperative/c2x1/streamk"]


def test_places_are_those_of_the_first_proposal_that_stands_for_a_template():
    far = 6  # six templates, of which the last is of another kind
    order = np.array([[2, 0, 1, 1, 3, far], [0, 4, 1, 2, 3, far], [1, 0, 2, 3, 4, far]])
    every = np.ones(6, dtype=bool)
    assert places(order, every).tolist() == [1, 0, UNMATCHED + 1, UNMATCHED + 1, UNMATCHED + 3, UNMATCHED + far]
    # without the second template the first proposal stands for two, and the third one for the first again
    runs = np.array([True, False, True, True, True, True])
    assert places(order, runs).tolist() == [1, INFEASIBLE, 0, 0, UNMATCHED + 3, UNMATCHED + far]


def test_answers_are_merged_by_estimate_each_in_its_own_order():
    rows = [(0, 0, 5.0, 1), (0, 0, 4.0, 2), (0, 0, 7.0, 3), (0, 1, 1.0, 4), (1, 0, 5.0, 5), (1, 0, 6.0, 6)]
    proposed = np.concatenate(
        [kernel((64, 64, 64), question=q, problem=p, runtime_s=t, stages=name) for q, p, t, name in rows]
    )
    assert best_first(proposed)["stages"].tolist() == [1, 2, 5, 6, 3, 4]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "s4"}, "no name for s4"),
        ({"dtype": "b1"}, "no name for b1"),
        ({"device": DEVICE}, "describes no synthetic"),
        ({"device": H200.model_copy(update={"sm_count": 72, "sm_total": 132})}, "not 72 of its SMs"),
    ],
)
def test_it_declines_what_the_library_does_not_describe(changes, reason):
    with pytest.raises(Declined, match=reason):
        Nvmmh().costs(extreme_problems("s8"), task(**changes))


def test_missing_library_names_the_extra(monkeypatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(nvmmh, "version", missing)
    with pytest.raises(Declined, match=r"not installed .* pip install 'tilearena\[nvmmh\]'"):
        Nvmmh().costs(extreme_problems("s8"), task())


def test_another_version_of_the_library_is_refused(monkeypatch):
    monkeypatch.setattr(nvmmh, "version", lambda name: "0.1.0.28")
    with pytest.raises(PredictorError, match=rf"0\.1\.0\.28 is installed.*brings {VERSION}"):
        Nvmmh().costs(extreme_problems("s8"), task())


@pytest.fixture
def standin(tmp_path, monkeypatch):
    """A stand-in for the library, for child processes."""
    (tmp_path / "nvMatmulHeuristics.py").write_text(STANDIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(nvmmh, "version", lambda name: VERSION)


def test_swapped_kernels_are_asked_about_the_transpose_and_told_in_terms_of_d(standin):
    found = proposals("H200_SXM", list(ASKED), np.array([[16, 256, 4], [7, 8, 16], [64, 32, 5]]))
    assert found[["question", "problem"]].tolist() == [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 2)]
    both = found[found["problem"] != 1]
    assert both["tile"].tolist() == [[16, 256, 64], [64, 32, 64]] * 3
    assert both["warp"].tolist() == [[16, 256], [64, 32]] * 3
    assert both["cluster"].tolist() == [[1, 2]] * 2 + [[2, 1]] * 2 + [[1, 1]] * 2
    assert both["swizzle"].tolist() == [1, 1, 2, 2, 1, 1]


def test_costs_are_places_and_nan_without_a_proposal(standin):
    costs = Nvmmh().costs(np.array([[128, 128, 48], [7, 8, 16], [64, 64, 32]]), task())
    labels = [t.label for t in templates()]
    assert [labels[i] for i in costs[[0, 2]].argmin(axis=1)] == ["medium/4", "small/4"]
    assert np.isnan(costs[1]).all()
    assert np.isfinite(costs[[0, 2]]).all()
    assert (costs[[0, 2]] == 0).sum() == 2
    # what is next to the only proposal comes next
    assert [labels[i] for i in costs[2].argsort(kind="stable")[:3]] == ["small/4", "small/3", "small/2"]


def test_no_proposal_at_all_is_nan(standin):
    assert np.isnan(Nvmmh().costs(np.array([[7, 8, 16]]), task())).all()


def test_library_that_fails_is_told_in_a_sentence(standin):
    with pytest.raises(PredictorError, match=r"exit code 1 \(RuntimeError: unlucky\); run: pip install"):
        Nvmmh().costs(np.array([[13, 8, 16]]), task())


@pytest.mark.nvmmh
def test_library_answers_on_every_gpu_in_the_list():
    first = {}
    for gpu in GPUS.values():
        found = proposals(gpu, [CUTLASS2], np.array([[4096, 4096, 4096]]))
        assert (found["runtime_s"] > 0).all()
        first[gpu] = (*found["tile"][0].tolist(), int(found["stages"][0]))
    assert first["A100_SXM_80GB"] == (256, 128, 64, 6)
    assert first["H200_SXM"] == (256, 128, 64, 8)


@pytest.mark.nvmmh
def test_library_is_asked_for_more_than_it_has():
    found = proposals("H200_SXM", list(ASKED), extreme_problems("s8"))
    assert np.unique(found[["question", "problem"]]).size == len(ASKED) * len(extreme_problems("s8"))
    assert np.unique(found[["question", "problem"]], return_counts=True)[1].max() < MOST


@pytest.mark.nvmmh
def test_library_knows_six_tiles_of_cutlass2():
    found = proposals("H200_SXM", [CUTLASS2], SHAPES)
    tiles = [(64, 64), (64, 128), (128, 64), (128, 128), (256, 64), (256, 128)]
    assert np.unique(found["tile"], axis=0).tolist() == [[m, n, 64] for m, n in tiles]
    assert found["warp"].max() == 64


@pytest.mark.nvmmh
def test_nothing_that_cannot_run_is_before_what_can():
    wide, problems = task("h200-all"), extreme_problems("s8")
    costs = Nvmmh().costs(problems, wide)
    for (m, n, k), row in zip(problems.tolist(), costs, strict=True):
        problem = Problem(dtype="s8", m=m, n=n, k=k)
        runs = np.array([rejection(problem, template, wide.device) is None for template in wide.templates])
        assert (row[runs] < INFEASIBLE).all()
        assert (row[~runs] >= INFEASIBLE).all()
        assert not runs.any() or row.min() == 0


@pytest.mark.nvmmh
@pytest.mark.parametrize("device", [H200, DEVICE.model_copy(update={"product": "NVIDIA A100-SXM4-80GB"})])
def test_it_keeps_the_contract_where_it_does_not_decline(device, monkeypatch):
    monkeypatch.setattr("tilearena.synthetic.DEVICE", device)
    monkeypatch.setattr(rules, "load", lambda name: Nvmmh())
    assert gpu_name(synthetic_task()) == GPUS[device.product]
    rules.conformance("nvmmh")


def test_page_has_every_gpu_target_and_the_version():
    page = (Path(__file__).parents[1] / "docs" / "nvmmh.md").read_text()
    assert set(re.findall(r"`(NVIDIA [^`]*)`", page)) == set(GPUS)
    assert set(re.findall(r"`(CUTLASS\d?)`", page)) == {target for target, _ in ASKED.values()}
    assert set(re.findall(r"`(T[TN]_\w+)`", page)) == {layout for _, layout in ASKED.values()}
    assert f"version {VERSION}" in page


def test_engine_and_predictor_leave_the_library_alone():
    assert "nvMatmulHeuristics" not in sys.modules
