"""The locked part of lowbit-full: which shapes, how many, and that they train and test nothing else."""

import hashlib

import numpy as np
import pytest

from tilearena.final import is_final
from tilearena.spec import load_workload, workload_names
from tilearena.splits import SPLITS, selected

#: m of a shape m x 136 x 144, how `printf "m 136 144" | sha256sum` begins, and whether below 0.2367 (0x3c98).
HASHES = [
    (1, 0xD2C4, False),
    (2, 0xFAF7, False),
    (3, 0xD7AF, False),
    (4, 0x0F0A, True),
    (5, 0xE1FB, False),
    (6, 0x209E, True),
    (7, 0x36E6, True),
    (8, 0x2488, True),
]


def shapes(spec, dtype):
    return np.array([[p.m, p.n, p.k] for p in load_workload(spec).problems_for(dtype)])


@pytest.mark.parametrize(("m", "first_bits", "locked"), HASHES)
def test_hash_of_the_shape_decides(m, first_bits, locked):
    assert hashlib.sha256(f"{m} 136 144".encode()).hexdigest()[:4] == f"{first_bits:04x}"
    assert locked == (first_bits / 2**16 < 0.2367)
    assert is_final(np.array([[m, 136, 144]])).tolist() == [locked]


@pytest.mark.parametrize("dtype", ["s8", "b1"])
def test_a_fifth_of_lowbit_full_is_final_and_nothing_of_lowbit_random(dtype):
    full, seen = shapes("lowbit-full", dtype), shapes("lowbit-random", dtype)
    final = is_final(full)
    unseen = ~np.isin(full.view([("", full.dtype)] * 3)[:, 0], seen.view([("", seen.dtype)] * 3)[:, 0])
    assert unseen.sum() == 10_900
    assert not final[~unseen].any()
    # a binomial count: within three standard deviations of its mean
    assert abs(final.sum() - 0.2367 * 10_900) < 3 * np.sqrt(10_900 * 0.2367 * (1 - 0.2367))
    assert len(full) == 12_900
    assert round(final.mean(), 2) == 0.20


@pytest.mark.parametrize("dtype", ["s8", "b1"])
def test_splits_of_lowbit_full_test_either_the_final_part_or_none_of_it(dtype):
    full = shapes("lowbit-full", dtype)
    final = set(np.flatnonzero(is_final(full)).tolist())
    rows = {split: set(selected(split, "lowbit-full", full).tolist()) for split in SPLITS}
    assert rows["final"] == final
    assert rows["random"] == rows["device"] == set(range(len(full))) - final
    assert rows["extrapolate"] == {i for i in rows["random"] if int(np.prod(full[i].astype(object))) >= 2**30}


def test_no_other_workload_has_a_final_shape_of_lowbit_full():
    full = np.concatenate([shapes("lowbit-full", dtype) for dtype in ("s8", "b1")])
    final = set(map(tuple, full[is_final(full)].tolist()))
    for name in set(workload_names()) - {"lowbit-full"}:
        workload = load_workload(name)
        found = {(p.m, p.n, p.k) for dtype in workload.dtypes for p in workload.problems_for(dtype)}
        assert not found & final


def test_other_specs_have_no_final_part():
    problems = np.array([[m, 136, 144] for m in range(1, 100)])
    assert is_final(problems).any()
    assert selected("random", "quick", problems).tolist() == list(range(99))
    assert selected("random", "lowbit-full", problems).tolist() == np.flatnonzero(~is_final(problems)).tolist()
