"""The main job: from recordings in a process of its own, and live with a formula in place of the GPU."""

import json
import os
import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from inprocess import InProcessHand
from rich.console import Console
from standin import DEVICE, StandInRunner, formula_ns, templates
from sweeping import session as session_of

from tilearena import bench, bench_timings, dataset
from tilearena.bench_timings import DeviceClock, Kernel, Subjects
from tilearena.root import find_path
from tilearena.score import Key
from tilearena.spec import load_space, load_workload

CHEAP = ("default", "constant", "nearest")


@pytest.fixture(autouse=True)
def no_xdist(monkeypatch):
    # pytest-benchmark refuses to time in a worker of pytest-xdist, and `bench` starts pytest in this process
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture
def recorded_quick(arena):
    """The arena with recordings of quick, cold, and the options that name them."""
    workload = load_workload("quick")
    for dtype in workload.dtypes:
        arena.record("quick", dtype, np.array([[p.m, p.n, p.k] for p in workload.problems_for(dtype)]))
    return ("--root", arena.root, "--device", DEVICE.slug)


def asked(names):
    return [part for name in names for part in ("--predictor", name)]


def benchmarks(folder):
    """Benchmarks by name of the one saved run."""
    (path,) = folder.glob("benchmarks/*/*.json")
    return path.name, {b["name"]: b for b in json.loads(path.read_text())["benchmarks"]}


def test_bench_from_recordings_scores_submits_and_times(child, recorded_quick, tmp_path):
    tmp_path = tmp_path / "out"
    done = child("bench", "quick", *asked(CHEAP), "--out", tmp_path, *recorded_quick)
    assert done.returncode == 0, done.stderr
    assert "no GPU" in done.stdout
    said = re.findall(r"trained and scored 3 predictors on (.*)", done.stdout)
    assert said == ["quick s8", "quick s4", "quick b1"]
    assert re.search(r"Synthetic device \(formula, not measured\), recorded 2026-01-02, driver 0.0;", done.stdout)
    rows = re.findall(r"^│ (\w+) +│ [\d.]+ % ", done.stdout, flags=re.MULTILINE)
    assert [sorted(rows[i : i + 3]) for i in range(0, len(rows), 3)] == [sorted(CHEAP)] * 3
    folder = tmp_path / "leaderboard" / "submissions" / DEVICE.slug / "quick"
    submissions = sorted(folder.glob("*/*.json"))
    assert [path.parent.name for path in submissions] == sorted(CHEAP)
    assert "3 submissions are below" in done.stdout
    results = [result["key"] for result in json.loads(submissions[0].read_text())["results"]]
    assert [(key["dtype"], key["protocol"], key["split"]) for key in results] == [
        (dtype, "cold", "random") for dtype in ("s8", "s4", "b1")
    ]
    checked = child("check", *submissions, *recorded_quick[:2])
    assert (checked.returncode, checked.stdout.count("every figure follows")) == (0, 3)
    name, timed = benchmarks(tmp_path)
    assert name == "0001_replay.json"
    assert set(timed) == {"test_score", *(f"test_predict[{predictor}]" for predictor in CHEAP)}
    assert all(0 < row["stats"]["median"] < 5 for row in timed.values())


def test_bench_as_json_prints_scores_alone_on_standard_output(child, recorded_quick, tmp_path):
    tmp_path = tmp_path / "out"
    done = child("bench", "quick", *asked(["constant"]), "--out", tmp_path, "--replay", "--json", *recorded_quick)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    (path,) = (tmp_path / "leaderboard" / "submissions" / DEVICE.slug / "quick" / "constant").glob("*.json")
    results = json.loads(path.read_text())["results"]
    assert [row["dtype"] for row in rows] == ["s8", "s4", "b1"]
    assert all(result["figures"].items() <= row.items() for row, result in zip(rows, results, strict=True))
    assert "test_predict[constant]" in done.stderr
    assert "│ constant" in done.stderr


def test_bench_gives_its_options_to_every_fit(run, recorded_quick, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(bench, "replay", lambda options, *_: seen.append(options.fit) or bench.Outcome([], good=True))
    limits = ("--memory-limit", "0.5", "--time-limit", "9", "--seed", "7")
    code, _, err = run("bench", "quick", "--replay", "--out", tmp_path / "out", *limits, *recorded_quick)
    assert (code, err) == (0, "")
    assert seen == [{"seed": 7, "time_limit_s": 9.0, "memory_limit_bytes": 1 << 29}]


def test_bench_lists_a_failing_predictor_and_keeps_the_others(child, recorded_quick, tmp_path, third_party):
    tmp_path = tmp_path / "out"
    third_party("bad", "raise ValueError('no such tile')")
    done = child("bench", "quick", *asked(["bad", "constant"]), "--out", tmp_path, "--replay", *recorded_quick)
    assert done.returncode == 1
    rows = re.findall(r"^│ (bad|constant) +│ (failed|[\d.]+ %)", done.stdout, flags=re.MULTILINE)
    assert (rows[0][0], rows[1]) == ("constant", ("bad", "failed"))
    assert done.stdout.count("no such tile") == 3
    assert len(re.findall(r"^│ constant +│ [\d.]+ %", done.stdout, flags=re.MULTILINE)) == 3
    folder = tmp_path / "leaderboard" / "submissions" / DEVICE.slug / "quick"
    stored = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/*.json")}
    assert {name: {r["status"] for r in s["results"]} for name, s in stored.items()} == {
        "bad": {"failed"}, "constant": {"ok"}
    }  # fmt: skip
    assert set(benchmarks(tmp_path)[1]) == {"test_score", "test_predict[constant]"}


def test_device_clock_stands_still_except_for_device_time():
    clock = DeviceClock()
    assert clock() == clock() == 0
    clock.elapsed_ns += 2_500
    assert clock() == 2.5e-6


def test_kernel_benchmarks_have_the_device_times(tmp_path, arena, recorded_quick, monkeypatch):
    """Each round advances the clock by one proved sample, for one launch."""
    recording = dataset.read(find_path(arena.root, DEVICE.slug, "quick", "paper9", "s8", "cold"))
    session, hand = session_of(), InProcessHand(StandInRunner(noise=0.0))
    kernels = [Kernel(session.problems[p], session.protocol, c, f"t{c}") for p, c in ((0, 1), (3, 8))]
    subjects = Subjects(
        recording.table, key_of(recording), [], kernels, {"s8": session}, open_hand=lambda _: closing(hand)
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    assert bench_timings.run(subjects, tmp_path / "benchmarks", "card")
    assert os.environ["PYTEST_ADDOPTS"] == "--no-such-option"
    name, timed = benchmarks(tmp_path)
    assert name == "0001_card.json"
    for kernel in kernels:
        p = kernel.problem
        stats = timed[f"test_kernel[{kernel.id}]"]["stats"]
        expected = round(formula_ns((p.m, p.n, p.k), templates("s8")[kernel.candidate])) * 1e-9
        assert stats["median"] == pytest.approx(expected, rel=1e-6)
        assert stats["rounds"] == session.protocol.rounds
    assert kernels[0].id == "s8-1x4096x4096-cold-t1"
    # and a round before the first that counts
    assert len(hand.asked) == 2 * (session.protocol.rounds + 1)
    assert hand.closed


def test_kernel_that_fails_fails_its_benchmark_alone(tmp_path, arena, recorded_quick, capsys):
    recording = dataset.read(find_path(arena.root, DEVICE.slug, "quick", "paper9", "s8", "cold"))
    session, hand = session_of(), InProcessHand(StandInRunner(faults=[("wrong", None, 4)]))
    kernels = [Kernel(session.problems[0], session.protocol, c, f"t{c}") for c in (1, 4)]
    subjects = Subjects(
        recording.table, key_of(recording), [], kernels, {"s8": session}, open_hand=lambda _: closing(hand)
    )
    assert not bench_timings.run(subjects, tmp_path / "benchmarks", "card")
    assert "s8-1x4096x4096-cold-t4: row 4 of the output is wrong" in capsys.readouterr().out
    assert "test_kernel[s8-1x4096x4096-cold-t1]" in benchmarks(tmp_path)[1]


def key_of(recording):
    h = recording.header
    own = {"op": h.op, "spec": h.spec, "space": h.space, "dtype": h.dtype, "protocol": h.protocol.name}
    return Key(
        **own, device=h.device.slug, split="random", predictor="x", version="1", train_spec=h.spec, support=h.support
    )


class _SlowedIfS4(InProcessHand):
    """Its fresh run on s4 is always slowed."""

    def measure(self, order, *arguments, **options):
        finished = super().measure(order, *arguments, **options)
        return replace(finished, slowed=order.problems[0].dtype == "s4" and order.protocol.screen_rounds == 0)


class FakeGpu:
    """Opens the stand-in in place of a GPU, for s8 with a vendor's kernel."""

    device, space = DEVICE, load_space("paper9")

    def __call__(self, session):
        dtype = session.problems[0].dtype
        hand = _SlowedIfS4(StandInRunner(dtype=dtype, vendor=0.9 if dtype == "s8" else None))
        return closing(hand)


def test_bench_on_a_gpu_from_measuring_to_kernel_benchmarks(arena, tmp_path):
    arena.record("lowbit-random", "b1", arena.shapes(40, seed=0))
    out = tmp_path / "out"
    options = bench.Options(
        data=arena.root,
        out=out,
        predictors=["default", "nearest"],
        protocol="cold",
        space="paper9",
        seed=0,
        time_limit_s=60.0,
        memory_limit_bytes=4 << 30,
    )
    with (tmp_path / "printed.txt").open("w") as file:
        outcome = bench.on_gpu(options, FakeGpu(), "quick", Console(file=file, width=160))
    assert outcome.good
    assert [(r["dtype"], r["predictor"], r["trained"], r["split"]) for r in outcome.rows] == [
        (dtype, name, "recorded", "models") for dtype in ("s8", "s4", "b1") for name in ("default", "nearest")
    ]
    printed = (tmp_path / "printed.txt").read_text()
    rows = re.findall(r"^│ (\w+) +│ (\w+) +│ [\d.]+ % +│ [\d.]+ % +│ ([\d.]+)x", printed, flags=re.MULTILINE)
    assert sorted(row[:2] for row in rows) == [("default", "recorded")] * 3 + [("nearest", "recorded")] * 3
    assert [speedup for name, _, speedup in rows if name == "default"] == ["1.000"] * 3
    assert all(float(speedup) > 1.1 for name, _, speedup in rows if name == "nearest")
    found = [(r["predictor"], "recorded", f"{r['fresh_speedup_geomean']:.3f}") for r in outcome.rows]
    pairs = [slice(i, i + 2) for i in range(0, 6, 2)]  # of a dtype; they are printed best first
    assert [sorted(found[pair]) for pair in pairs] == [sorted(rows[pair]) for pair in pairs]
    assert all(r["fresh_speedup_geomean_lo"] < r["fresh_speedup_geomean_hi"] for r in outcome.rows[1::2])
    assert [(r["vendor"], r["vendor_problems"]) for r in outcome.rows] == [("cublaslt", 42)] * 2 + [(None, 0)] * 4
    assert "over cublaslt" in printed
    assert [f"{r['vendor_speedup_geomean']:.3f}x of 42" in printed for r in outcome.rows[:2]] == [True, True]
    assert "the fresh run was slowed down by heat or its hardware (s4): " in printed
    _, timed = benchmarks(out)
    kernels = [name for name in timed if name.startswith("test_kernel")]
    assert {name.split("[")[1].split("-")[0] for name in kernels} == {"s8", "s4", "b1"}
    assert sum(name.endswith("-large/3]") for name in kernels) == 3 * bench.TIMED_PROBLEMS
    assert {path.name for path in (out / "baselines/recordings" / DEVICE.slug / "quick").iterdir()} == {
        f"gemm.paper9.{dtype}.cold.parquet" for dtype in ("s8", "s4", "b1")
    }
    assert np.median([timed[name]["stats"]["median"] for name in kernels]) < 1e-3
