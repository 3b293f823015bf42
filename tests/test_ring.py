"""Rings of device memory: what a slice overlaps was handed out long ago. The header is compiled for the host."""

import ctypes
import random
import shutil
import subprocess
from itertools import pairwise

import pytest

from tilearena import build

SOURCE = """
#include "ring.h"
#include <vector>
extern "C" {
int64_t ring_size(int64_t largest, int64_t idle) { return tilearena::Ring(largest, idle).size(); }
int64_t ring_disjoint(int64_t largest, int64_t idle, int64_t bytes) {
  return tilearena::Ring(largest, idle).disjoint(bytes);
}
void ring_slices(int64_t largest, int64_t idle, int count, const int64_t* bytes, int64_t* begin) {
  tilearena::Ring ring(largest, idle);
  for (int i = 0; i < count; ++i) begin[i] = ring.slice(bytes[i]);
}
}
"""


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """The functions of SOURCE."""
    compiler = shutil.which("g++")
    assert compiler, "g++ is needed, as nvcc needs it"
    folder = tmp_path_factory.mktemp("ring")
    source, library = folder / "ring.cpp", folder / "ring.so"
    source.write_text(SOURCE)
    command = [compiler, "-std=c++17", "-shared", "-fPIC", f"-I{build.kernel_sources()}", source, "-o", library]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.ring_size.restype = loaded.ring_disjoint.restype = ctypes.c_int64
    return loaded


def slices(ring, largest, idle, sizes):
    """(begin, end) of each slice."""
    array = ctypes.c_int64 * len(sizes)
    begins = array()
    ring.ring_slices(ctypes.c_int64(largest), ctypes.c_int64(idle), len(sizes), array(*sizes), begins)
    return [(begin, begin + size) for begin, size in zip(begins, sizes, strict=True)]


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def walks(count):
    """Rings, and the sizes that are asked of each: runs of equal ones, as problems ask for, of all sizes that fit."""
    rng = random.Random(7)
    for _ in range(count):
        largest, idle = rng.randint(1, 90), rng.randint(1, 30)
        small, sizes = min(largest, idle), []
        while len(sizes) < 70:
            size = rng.choice([rng.randint(1, largest), rng.randint(1, small), largest, small])
            sizes += [size] * rng.choice([1, 1, 1, 2, 3, rng.randint(1, 12)])
        yield largest, idle, sizes


def test_what_a_slice_overlaps_was_handed_out_at_least_an_idle_of_bytes_ago(ring):
    for largest, idle, sizes in walks(3000):
        handed_out = slices(ring, largest, idle, sizes)
        whole = ring.ring_size(ctypes.c_int64(largest), ctypes.c_int64(idle))
        assert all(begin >= 0 and end <= whole for begin, end in handed_out)
        for i, mine in enumerate(handed_out):
            between, j = 0, i
            while j and between < idle:
                j -= 1
                assert not overlap(handed_out[j], mine)
                between += sizes[j]


def test_neighbours_never_overlap(ring):
    """Two problems under way at the same time have a slice each."""
    for walk in walks(1000):
        assert not any(overlap(*pair) for pair in pairwise(slices(ring, *walk)))


def test_so_many_slices_as_it_says_are_disjoint_wherever_they_begin(ring):
    for largest, idle, before in walks(1000):
        for size in {1, min(largest, idle), max(1, largest // 2), largest}:
            count = ring.ring_disjoint(*map(ctypes.c_int64, (largest, idle, size)))
            mine = slices(ring, largest, idle, [*before, *[size] * min(count, 40)])[len(before) :]
            assert len(mine) >= 1
            assert not any(overlap(a, b) for i, a in enumerate(mine) for b in mine[:i])


def test_small_slices_use_the_whole_ring_and_large_ones_both_ends(ring):
    assert ring.ring_size(ctypes.c_int64(100), ctypes.c_int64(10)) == 220
    assert slices(ring, 100, 10, [10] * 23)[-2:] == [(210, 220), (0, 10)]
    assert slices(ring, 100, 10, [100] * 4) == [(0, 100), (120, 220), (0, 100), (120, 220)]
    assert slices(ring, 100, 10, [10, 100, 60]) == [(0, 10), (10, 110), (160, 220)]
