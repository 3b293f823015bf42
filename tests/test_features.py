"""What the learned models see: every feature is on its page, and some are counted by hand."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilearena.predictors.features import features, named_features
from tilearena.predictors.geometry import geometry, occupancy
from tilearena.spec import load_space
from tilearena.synthetic import synthetic_task

PAGE = Path(__file__).parents[1] / "docs" / "features.md"
WIDE = replace(synthetic_task(), templates=load_space("h200-all").templates("s8"))
LABELS = [template.label for template in WIDE.templates]
PROBLEM = np.array([[40, 4096, 8192]])


def of(name: str, label: str) -> float:
    """A feature of one template on the problem."""
    return float(np.broadcast_to(named_features(PROBLEM, WIDE)[name], (1, len(LABELS)))[0, LABELS.index(label)])


def test_page_has_every_feature_and_no_other():
    cells = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(named_features(PROBLEM, WIDE))


def test_features_keep_the_order_of_their_names():
    x, named = features(PROBLEM, WIDE), named_features(PROBLEM, WIDE)
    assert x.shape == (1, len(LABELS), len(named))
    for i, values in enumerate(named.values()):
        assert np.array_equal(x[..., i], np.broadcast_to(values, x.shape[:2]).astype(np.float32))


def test_split_k_multiplies_blocks_and_divides_steps():
    # medium: 128 x 128, 64 bytes of K; 1 x 32 tiles
    assert (of("tiles", "medium/3"), of("blocks", "medium/3"), of("steps", "medium/3")) == (5, 5, 7)
    assert (of("tiles", "medium/3/k4"), of("blocks", "medium/3/k4"), of("steps", "medium/3/k4")) == (5, 7, 5)
    # 100 SMs: 32 blocks leave most of them idle, 128 are two for the busiest
    assert of("work", "medium/3/k4") - of("work", "medium/3") == 1 - 2
    assert of("sm_fill", "medium/3/k4") == 0.64


def test_stream_k_shares_its_tiles_out_evenly():
    tiles, shared = "w128x128/5/cooperative", "k128x128/5/cooperative/streamk"
    assert of("work", tiles) - of("work", shared) == pytest.approx(np.log2(100 / 32), abs=1e-9)


def test_a_cluster_loads_what_its_blocks_share_once():
    # A is read for each of 32 tiles along N, or for each pair of them; B for the one tile along M
    alone, pair = (of("traffic", f"p128x128/5/pingpong{end}") for end in ("", "/c1x2"))
    assert 2**alone == pytest.approx(8192 * (40 * 32 + 4096))
    assert 2**pair == pytest.approx(8192 * (40 * 16 + 4096))
    # a neighbour along M shares B, but M is one tile
    assert of("traffic", "w256x128/4/cooperative/c2x1") == of("traffic", "w256x128/4/cooperative")


def test_features_of_some_templates_are_theirs_among_all():
    columns = np.array([200, 3, 77])
    assert np.array_equal(features(PROBLEM, WIDE, columns), features(PROBLEM, WIDE)[:, columns])


def test_the_least_of_all_templates_is_nought():
    for name in ("work", "traffic", "sm_bytes", "steps"):
        assert named_features(PROBLEM, WIDE)[f"{name}_over_least"].min() == 0


def test_persistent_kernels_have_one_block_on_an_sm():
    found = {t.schedule: occupancy(t, WIDE.device) for t in WIDE.templates if t.generator == "cutlass3"}
    assert found["pingpong"] == found["cooperative"] == 1
    narrow = WIDE.templates[LABELS.index("s16x64/8/warp_specialized")]
    # 164 KiB over 8 x 80 x 128 bytes of the main loop, 4 KiB of D and 1 KiB of the runtime
    assert occupancy(narrow, WIDE.device) == 1
    assert occupancy(narrow, WIDE.device.model_copy(update={"smem_per_sm_bytes": 228 << 10})) == 2


def test_geometry_of_paper9_has_a_block_for_each_tile():
    g = geometry(PROBLEM, synthetic_task())
    assert np.array_equal(g.blocks, g.tiles)
