"""The workloads and spaces that ship: what they hold is pinned, and keeps to what they say."""

import hashlib
import json

import pytest

from tilearena.feasible import memory_needed
from tilearena.spec import load_workload, space_names, workload_names


def shapes(workload, dtype):
    return [(p.m, p.n, p.k) for p in workload.problems_for(dtype)]


def digest(workload, dtype):
    return hashlib.sha256(json.dumps(shapes(workload, dtype)).encode()).hexdigest()[:16]


def test_shipped_names_are_listed():
    assert workload_names() == ["anchors", "lowbit-full", "lowbit-random", "networks", "quick"]
    assert space_names() == ["h200-all", "paper9", "sm80-wide", "sm90-native"]


@pytest.mark.parametrize("name", ["anchors", "lowbit-full", "lowbit-random", "networks", "quick"])
def test_shipped_workload_is_named_as_its_file(name):
    assert load_workload(name).name == name
    assert load_workload(name).space == "paper9"


@pytest.mark.parametrize(
    ("name", "dtype", "count", "first", "problems"),
    [
        ("lowbit-random", "s8", 2000, (5253, 1152, 128), "1c1335831d7c8a51"),
        ("lowbit-random", "s4", 2000, (5253, 1152, 128), "7390962148572d65"),
        ("lowbit-random", "b1", 2000, (5253, 1152, 128), "d29a1d40c9ca331b"),
        ("lowbit-full", "s8", 12900, (5253, 1152, 128), "d9aeb3b68849b3a7"),
        ("lowbit-full", "b1", 12900, (5253, 1152, 128), "557b310070968703"),
        ("anchors", "s8", 64, (8, 256, 384), "b5c149cc4a7d67f4"),
        ("anchors", "s4", 64, (8, 256, 384), "2de19c9420a94175"),
        ("anchors", "b1", 64, (8, 256, 384), "35c417cc31a01a29"),
        ("networks", "s8", 304, (1, 4096, 4096), "ca6629d11e0e7dab"),
        ("networks", "b1", 304, (1, 4096, 4096), "ca6629d11e0e7dab"),
        ("quick", "s8", 42, (1, 4096, 4096), "01749ead7f334715"),
        ("quick", "s4", 42, (1, 4096, 4096), "d127ab80974ca472"),
        ("quick", "b1", 42, (1, 4096, 4096), "51c1bfcd20e050ae"),
    ],
)
def test_shipped_problems_are_pinned(name, dtype, count, first, problems):
    workload = load_workload(name)
    assert len(workload.problems_for(dtype)) == count
    assert shapes(workload, dtype)[0] == first
    assert digest(workload, dtype) == problems


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anchors", "14642a8ca6d1fe52"),
        ("lowbit-full", "cddce8cdf44a0ae9"),
        ("lowbit-random", "e67b25c5b08c8b10"),
        ("networks", "483a6c8a8958d9c6"),
        ("quick", "7af3e8b114d88486"),
    ],
)
def test_shipped_fingerprint_is_pinned(name, expected):
    assert load_workload(name).fingerprint == expected


@pytest.mark.parametrize(("dtype", "alignment"), [("s8", 16), ("s4", 32), ("b1", 128)])
def test_lowbit_random_keeps_to_its_promise(dtype, alignment):
    problems = load_workload("lowbit-random").problems_for(dtype)
    assert len({(p.m, p.n, p.k) for p in problems}) == 2000
    assert all(1 <= p.m <= 16384 and 128 <= p.n <= 16384 and 128 <= p.k <= 16384 for p in problems)
    assert max(p.macs for p in problems) <= 2**36
    assert max(p.operand_bytes + p.output_bytes for p in problems) <= 8e9
    assert sum(p.m % 2 for p in problems) > 800
    ragged = [p for p in problems if p.n % 64 or p.k % 64]
    assert 0.15 < len(ragged) / 2000 < 0.22
    assert {p.k % alignment for p in problems} == {0}
    assert any(p.k % (2 * alignment) for p in problems)
    assert any(p.n % 16 for p in problems)


@pytest.mark.parametrize("dtype", ["s8", "b1"])
def test_lowbit_full_begins_with_lowbit_random_goes_on_to_larger_ones_and_fits_a_card_of_10_gb(dtype):
    problems = load_workload("lowbit-full").problems_for(dtype)
    assert problems[:2000] == load_workload("lowbit-random").problems_for(dtype)
    more = problems[2000:]
    assert 30_000 < max(max(p.m, p.n, p.k) for p in more) <= 32768
    assert 2**37 < max(p.macs for p in more) <= 2**38
    assert sum(p.macs > 2**36 for p in more) > 500
    assert max(memory_needed(p) for p in problems) < 10e9


@pytest.mark.parametrize("dtype", ["s8", "s4", "b1"])
def test_anchors_are_small_and_reach_from_memory_bound_to_compute_bound(dtype):
    problems = load_workload("anchors").problems_for(dtype)
    macs = sorted(p.macs for p in problems)
    assert macs[0] < 1 << 22
    assert 1 << 31 < macs[-1] <= 1 << 33
    assert sum(p.m < 17 for p in problems) >= 8


def test_lowbit_random_draws_differ_by_the_alignment_of_k_only():
    workload = load_workload("lowbit-random")
    pairs = list(zip(shapes(workload, "s8")[:100], shapes(workload, "s4")[:100], strict=True))
    assert all(a[:2] == b[:2] for a, b in pairs)
    assert all(abs(a[2] - b[2]) <= 32 for a, b in pairs)
    assert any(a[2] != b[2] for a, b in pairs)


@pytest.mark.parametrize("dtype", ["s8", "s4", "b1"])
def test_quick_reaches_from_one_token_to_2_pow_33(dtype):
    problems = load_workload("quick").problems_for(dtype)
    assert {1, 8, 16, 17, 33} <= {p.m for p in problems}
    assert max(p.macs for p in problems) == 2**33


def test_networks_holds_the_llama_layers():
    workload = load_workload("networks")
    assert workload.dtypes == ("s8", "b1")
    of_17_tokens = {(n, k) for m, n, k in shapes(workload, "s8") if m == 17}
    llama_8b = {(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)}
    llama_70b = {(10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)}
    assert llama_8b | llama_70b <= of_17_tokens
    assert shapes(workload, "s8") == shapes(workload, "b1")
