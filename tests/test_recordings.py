"""The committed recordings are complete, unchanged, and of the workloads and the spaces that ship."""

import functools
from pathlib import Path

import numpy as np
import pytest

from tilearena import dataset, root
from tilearena.anchors import anchor_problems
from tilearena.cli_measure import sampled
from tilearena.feasible import rejection
from tilearena.noise import noise_floor
from tilearena.records import Problem
from tilearena.root import path_for
from tilearena.spec import load_space, load_workload

CHECKOUT = Path(__file__).resolve().parents[1]
PATHS = root.recorded(CHECKOUT)
NAMES = {str(path.relative_to(CHECKOUT / root.RECORDINGS)) for path in PATHS}
MAX_BYTES = 24 << 20


#: What was recorded on an H200, whole, as partitions, and on a second card: dtypes, and those that have a repeat.
RECORDED = {
    ("nvidia-h200", "quick", "paper9"): ("s8 s4 b1", ""),
    ("nvidia-h200", "networks", "paper9"): ("s8 b1", ""),
    ("nvidia-h200", "lowbit-random", "paper9"): ("s8 s4 b1", "s8 b1"),
    ("nvidia-h200", "lowbit-full", "paper9"): ("s8 b1", "s8 b1"),
    ("nvidia-h200-sm72", "lowbit-full", "paper9"): ("s8 b1", ""),
    ("nvidia-h200-sm88", "lowbit-full", "paper9"): ("s8 b1", ""),
    ("nvidia-h200-sm112", "lowbit-full", "paper9"): ("s8 b1", ""),
    ("nvidia-h200.173025", "lowbit-random", "paper9"): ("s8 b1", "s8 b1"),
    ("nvidia-h200", "lowbit-random", "h200-all"): ("s8", "s8"),
    ("nvidia-h200", "lowbit-random", "sm80-wide"): ("s8 b1", "s8 b1"),
    ("nvidia-h200", "lowbit-random", "sm90-native"): ("b1", "b1"),
    ("nvidia-h200", "networks", "h200-all"): ("s8", ""),
    ("nvidia-h200", "networks", "sm80-wide"): ("b1", ""),
    ("nvidia-h200", "networks", "sm90-native"): ("b1", ""),
}


@functools.cache
def read(path):
    """Each is read once."""
    return dataset.read(path)


def sample(header, repeat):
    """How many problems were taken of a workload, evenly spaced: all where None."""
    if header.spec == "lowbit-random" and header.space != "paper9":
        return 1000 if not repeat else 250 if header.space == "h200-all" else 100
    if header.spec != "lowbit-full":
        return None
    return 3000 if header.device.sm_total else 2000 if repeat else None


def test_recordings_of_the_h200_are_all_there():
    expected = {
        f"{device}/{spec}/gemm.{space}.{dtype}.{protocol}{end}.parquet"
        for (device, spec, space), dtypes in RECORDED.items()
        for end, those in zip(("", ".repeat"), dtypes, strict=True)
        for dtype in those.split()
        for protocol in ("cold", "hot")
    }
    assert {name for name in NAMES if name.startswith("nvidia-h200")} == expected


def test_recordings_together_stay_light():
    assert 0 < sum(path.stat().st_size for path in PATHS) <= MAX_BYTES


@pytest.mark.parametrize("path", PATHS, ids=lambda p: "/".join(p.parts[-3:]))
def test_recording_is_of_what_ships(path):
    recording = read(path)
    header = recording.header
    workload, space = load_workload(header.spec), load_space(header.space)
    assert path == path_for(CHECKOUT, header, repeat=".repeat." in path.name)
    assert (header.spec_fingerprint, header.space_fingerprint) == (workload.fingerprint, space.fingerprint)
    assert recording.templates == space.templates(header.dtype, header.bit_op)
    assert header.default == space.default_index(header.dtype)
    repeat = ".repeat." in path.name
    expected = space.screened(workload.protocol(header.protocol.name, header.dtype))
    # a repeat has other operands and another order of launches
    assert header.protocol == expected.model_copy(update={"seed": expected.seed + repeat})
    problems = [[p.m, p.n, p.k] for p in sampled(workload.problems_for(header.dtype), sample(header, repeat))]
    assert sorted(recording.table.problems.tolist()) == sorted(problems)
    assert len(recording.rows) == len(problems) * len(header.candidates)


def problems_of_rows(recording):
    """The problem of each row."""
    header = recording.header
    made = {
        (m, n, k): Problem(op=header.op, dtype=header.dtype, m=m, n=n, k=k, bit_op=header.bit_op)
        for m, n, k in recording.table.problems.tolist()
    }
    return [made[shape] for shape in zip(*(recording.rows[axis].to_pylist() for axis in "mnk"), strict=True)]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: "/".join(p.parts[-3:]))
def test_recording_says_how_it_was_taken_and_every_failure_is_explained(path):
    recording = read(path)
    header = recording.header
    assert header.device.power_limit_w
    assert header.device.driver
    assert {"tilearena", "nvcc", "cutlass"} <= set(header.versions)
    assert header.clock
    assert 0 < header.clock.empty_interval_ns < header.clock.empty_launch_ns < 10_000
    assert 0 < header.clock.resolution_ns <= 1000
    assert header.support == ("emulated" if (header.dtype, header.device.arch) == ("s4", 90) else "native")
    assert header.noise_floor == noise_floor(recording)
    for row, problem in zip(recording.rows.to_pylist(), problems_of_rows(recording), strict=True):
        candidate = header.candidates[row["candidate"]]
        if candidate.origin == "vendor":  # it need not serve every problem
            continue
        reason = rejection(problem, candidate.template, header.device)
        assert (row["reason"] == reason) if reason else row["status"] == "ok", row
    assert np.isfinite(recording.table.time_ns).any(axis=1).all()
    assert np.isfinite(recording.table.time_ns[:, header.default]).all()


def test_page_says_what_sums_in_memory_are_worth():
    page = " ".join((CHECKOUT / "docs" / "spaces.md").read_text().split())
    shares, gains = [], []
    for protocol in ("cold", "hot"):
        table = read(root.find_path(CHECKOUT, "nvidia-h200", "lowbit-random", "h200-all", "s8", protocol)).table
        adding = np.array([template.adding for template in table.task.templates])
        gain = table.time_ns[:, ~adding].min(axis=1) / table.time_ns[:, adding].min(axis=1)
        shares.append(f"{100 * (gain > 1).mean():.1f} %")
        gains.append(f"{gain.max():.2f}")
    assert f"{shares[0]} of the problems cold and {shares[1]} hot, and up to {gains[0]} and {gains[1]} times" in page
    for protocol in ("cold", "hot"):
        table = read(root.find_path(CHECKOUT, "nvidia-h200", "lowbit-random", "sm90-native", "b1", protocol)).table
        best = [table.task.templates[i] for i in table.time_ns.argmin(axis=1)]
        assert not any(template.adding for template in best)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: "/".join(p.parts[-3:]))
def test_recording_says_in_what_state_the_card_was(path):
    header = read(path).header
    cards = {batch.card for batch in header.batches}
    assert None not in cards
    assert header.device.uuid_sha256 == (min(cards) if len(cards) == 1 else None)
    for batch in header.batches:
        assert not batch.slowed
        assert batch.telemetry.n_samples > 0
        assert batch.telemetry.sm_clock_mhz.max <= header.device.sm_clock_max_mhz
        assert batch.spread is not None
    n_anchors = len(anchor_problems(header.dtype, header.bit_op))
    whole = [anchors for anchors in header.anchors if anchors.end_ns]
    assert {anchors.card for anchors in whole} == cards
    assert all(len(times) == n_anchors for a in whole for times in (a.start_ns, a.end_ns))


@pytest.mark.parametrize("path", [p for p in PATHS if ".hot." in p.name], ids=lambda p: "/".join(p.parts[-3:]))
def test_hot_samples_fill_their_time_and_templates_share_the_number_of_launches(path):
    recording = read(path)
    protocol, candidates = recording.header.protocol, recording.header.candidates
    launches = recording.rows["launches"].to_numpy().reshape(-1, len(candidates))
    medians = [np.median(samples or [np.inf]) for samples in recording.rows["elapsed_ns"].to_pylist()]
    sample_ns = np.array(medians).reshape(launches.shape)
    own = [i for i, c in enumerate(candidates) if c.origin != "vendor"]
    # the templates share a number of launches, a kernel of the vendor has its own; what failed has none
    ran = launches[:, own] > 0
    assert (launches[:, own] == np.where(ran, launches[:, own].max(axis=1, keepdims=True), 0)).all()
    for group in (own, *([i] for i, c in enumerate(candidates) if c.origin == "vendor")):
        shared = launches[:, group].max(axis=1)
        few = (shared > 0) & (shared < protocol.hot_max_launches)
        fastest_ns = sample_ns[few][:, group].min(axis=1)
        # the pilot errs where launches are so short that the proof's times do not tell which template is the fastest
        short = fastest_ns < protocol.hot_fill_ns
        assert short.mean() < (0.02 if len(short) > 100 else 0.15)
        assert fastest_ns.min() > 0.5 * protocol.hot_fill_ns


def test_repeats_are_other_sessions_of_the_same_problems():
    repeats = [path for path in PATHS if ".repeat." in path.name]
    assert repeats
    for path in repeats:
        first = read(path.with_name(path.name.replace(".repeat", "")))
        again = read(path)
        assert not {b.session for b in again.header.batches} & {b.session for b in first.header.batches}
        assert again.header.fingerprint != first.header.fingerprint
        assert again.header.device.slug == first.header.device.slug
        assert set(map(tuple, again.table.problems.tolist())) <= set(map(tuple, first.table.problems.tolist()))
