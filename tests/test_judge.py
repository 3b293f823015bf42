"""Which recordings may serve together for a score."""

import re
from dataclasses import replace

import pytest

from tilearena import dataset
from tilearena.errors import RecordingError
from tilearena.judge import Sources


def test_repeat_of_other_candidates_is_no_ceiling(arena):
    path = arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True, vendor=1.1)
    sentence = (
        f"{path}: the repeat has other candidates than the recording (cublaslt): "
        "record it again with the same options and tools"
    )
    with pytest.raises(RecordingError, match=f"^{re.escape(sentence)}$"):
        Sources.open(arena.root, arena.key("lowbit-random", "s8"))


@pytest.mark.parametrize(
    ("versions", "names"),
    [
        ({"cuda": "13.0"}, "cuda"),
        ({"cuda": "12.8", "cublaslt": "121000"}, "cublaslt"),
        ({"cutlass": "4.1"}, "cuda, cutlass"),
    ],
)
def test_repeat_of_kernels_of_other_tools_is_no_ceiling(arena, versions, names):
    shapes = arena.shapes(40, seed=0)
    arena.record("lowbit-random", "s8", shapes, versions={"cuda": "12.8"})
    arena.record("lowbit-random", "s8", shapes, seed=1, repeat=True, versions=versions)
    with pytest.raises(RecordingError, match=rf"the repeat has other versions than the recording \({names}\)"):
        Sources.open(arena.root, arena.key("lowbit-random", "s8"))


def test_repeat_with_its_candidates_in_another_order_is_no_ceiling(arena):
    path = arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True)
    recording = dataset.read(path)
    first, second, *rest = recording.header.candidates
    dataset.write(path, recording.header.model_copy(update={"candidates": (second, first, *rest)}), recording.rows)
    with pytest.raises(RecordingError, match=r"the repeat has other candidates than the recording"):
        Sources.open(arena.root, arena.key("lowbit-random", "s8"))


def test_repeat_by_another_tilearena_is_a_ceiling(arena):
    shapes = arena.shapes(40, seed=0)
    arena.record("lowbit-random", "s8", shapes, versions={"cuda": "12.8", "tilearena": "1"})
    arena.record("lowbit-random", "s8", shapes, seed=1, repeat=True, versions={"tilearena": "2", "cuda": "12.8"})
    assert Sources.open(arena.root, arena.key("lowbit-random", "s8")).repeat is not None


@pytest.mark.parametrize("repeat", [False, True])
def test_imported_recording_under_the_name_of_a_workload_is_refused(arena, repeat):
    """Or it would be ranked like one that was measured."""
    key = arena.key("lowbit-random", "s8")
    sources = Sources.open(arena.root, key)
    sources.require()
    sources.require_measured()
    one = "repeat" if repeat else "test"
    held = getattr(sources, one)
    forged = replace(sources, **{one: replace(held, header=held.header.model_copy(update={"origin": "labels"}))})
    with pytest.raises(RecordingError, match=r"is imported \(labels\), but lowbit-random is a workload"):
        forged.require()
    with pytest.raises(RecordingError, match="only what tilearena measured is ranked"):
        forged.require_measured()
