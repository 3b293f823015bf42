"""The committed recordings are complete, unchanged, and of the workloads and the space that ship."""

from pathlib import Path

import numpy as np
import pytest

from tilearena import dataset, measure, root
from tilearena.spec import load_space, load_workload

CHECKOUT = Path(__file__).resolve().parents[1]
PATHS = root.recorded(CHECKOUT)
NAMES = {str(path.relative_to(CHECKOUT / root.RECORDINGS)) for path in PATHS}
MAX_BYTES = 24 << 20


def test_recordings_of_the_h200_are_all_there():
    of_spec = {"quick": ("s8", "s4", "b1"), "lowbit-random": ("s8", "s4", "b1"), "networks": ("s8", "b1")}
    expected = {
        f"nvidia-h200/{spec}/gemm.paper9.{dtype}.{protocol}{repeat}.parquet"
        for spec, dtypes in of_spec.items()
        for dtype in dtypes
        for protocol in ("cold", "hot")
        for repeat in ("", ".repeat")
        if not repeat or (spec == "lowbit-random" and dtype != "s4")
    }
    assert {name for name in NAMES if name.startswith("nvidia-h200/")} == expected


def test_recordings_together_stay_light():
    assert 0 < sum(path.stat().st_size for path in PATHS) <= MAX_BYTES


@pytest.mark.parametrize("path", PATHS, ids=lambda p: "/".join(p.parts[-3:]))
def test_recording_is_of_what_ships(path):
    recording = dataset.read(path)
    header = recording.header
    workload, space = load_workload(header.spec), load_space(header.space)
    assert path == dataset.path_for(CHECKOUT, header, repeat=".repeat." in path.name)
    assert (header.spec_fingerprint, header.space_fingerprint) == (workload.fingerprint, space.fingerprint)
    assert recording.templates == space.templates(header.dtype, header.bit_op)
    assert header.default == space.default_index
    repeat = ".repeat." in path.name
    expected = workload.protocol(header.protocol.name, header.dtype)
    # a repeat has other operands and another order of launches
    assert header.protocol == expected.model_copy(update={"seed": expected.seed + repeat})
    problems = [[p.m, p.n, p.k] for p in workload.problems_for(header.dtype)]
    assert recording.table.problems.tolist() == problems
    assert len(recording.rows) == len(problems) * len(header.candidates)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: "/".join(p.parts[-3:]))
def test_recording_says_how_it_was_taken_and_has_no_failures(path):
    recording = dataset.read(path)
    header = recording.header
    assert header.device.power_limit_w
    assert header.device.driver
    assert header.device.uuid_sha256
    assert {"tilearena", "nvcc", "cutlass"} <= set(header.versions)
    assert header.telemetry["n_samples"] > 0
    assert header.telemetry["sm_clock_mhz"]["max"] <= header.device.sm_clock_max_mhz
    assert header.support == ("emulated" if (header.dtype, header.device.arch) == ("s4", 90) else "native")
    assert header.noise_floor == measure.noise_floor(recording)
    assert set(recording.rows["status"].to_pylist()) == {"ok"}
    assert {len(samples) for samples in recording.rows["elapsed_ns"].to_pylist()} == {header.protocol.rounds}
    launches = recording.rows["launches"].to_numpy()
    assert launches.max() <= (1 if header.protocol.name == "cold" else header.protocol.hot_max_launches)
    assert np.isfinite(recording.table.time_ns).all()


@pytest.mark.parametrize("path", [p for p in PATHS if ".hot." in p.name], ids=lambda p: "/".join(p.parts[-3:]))
def test_hot_samples_fill_their_time_and_candidates_share_the_number_of_launches(path):
    recording = dataset.read(path)
    protocol, n_candidates = recording.header.protocol, len(recording.header.candidates)
    launches = recording.rows["launches"].to_numpy().reshape(-1, n_candidates)
    assert (launches == launches[:, :1]).all()
    sample_ns = np.median(np.array(recording.rows["elapsed_ns"].to_pylist()), axis=1).reshape(-1, n_candidates)
    short = (sample_ns < protocol.hot_fill_ns) & (launches < protocol.hot_max_launches)
    assert short.mean() < 0.001  # a pilot of five launches says how many it takes, and now and then it errs
    assert sample_ns[short].min(initial=protocol.hot_fill_ns) > 0.9 * protocol.hot_fill_ns


def test_repeats_are_other_sessions_of_the_same_problems():
    repeats = [path for path in PATHS if ".repeat." in path.name]
    assert repeats
    for path in repeats:
        first = dataset.read(path.with_name(path.name.replace(".repeat", "")))
        again = dataset.read(path)
        assert not set(again.header.sessions) & set(first.header.sessions)
        assert again.header.fingerprint != first.header.fingerprint
        assert again.header.device == first.header.device
        assert np.array_equal(again.table.problems, first.table.problems)
