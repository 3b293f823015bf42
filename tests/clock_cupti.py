"""The same launches timed by our events and by CUPTI: ``python tests/clock_cupti.py OUT.json``, about 20 s.

34 (problem, template) pairs from about 3 us to 5 ms, cold and hot, 31 samples each: once before CUPTI is loaded, once
with its activity records. A cold sample is one launch: the record's duration. A hot one is a few back to back: from the
start of the first to the end of the last. Our time is the distance of the two events less what two events around an
empty kernel add to CUPTI's time of that kernel, measured in the same process; it agrees if it is within 3 % or 0.3 us
of CUPTI's, for the whole sample.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import clock_setup
from cupti_records import Kernel, Recorder

from tilearena import live
from tilearena.errors import MeasureError
from tilearena.gpu_runner import GpuRunner
from tilearena.gpu_trial import GpuTrial
from tilearena.records import PROTOCOLS, Dtype, Problem, ProtocolName
from tilearena.spec import load_space

T = TypeVar("T")
SAMPLES = 31
RELATIVE, ABSOLUTE_NS = 0.03, 300
#: Up to here a constant that remains is more than 3 %.
SHORT_NS = 30_000

S8 = (
    (16, 128, 512),
    (64, 256, 512),
    (128, 512, 1024),
    (256, 1024, 1024),
    (64, 2048, 2048),
    (512, 2048, 2048),
    (33, 4096, 4096),
    (17, 8192, 8192),
    (1024, 2048, 4096),
    (1000, 4096, 4096),
    (1, 16384, 16384),
    (2048, 4096, 4096),
    (4096, 4096, 4096),
    (3000, 8192, 5120),
    (4096, 8192, 8192),
    (8192, 8192, 8192),
    (8192, 8192, 12288),
    (8192, 8192, 16384),
    (12288, 8192, 16384),
    (16384, 8192, 16384),
)
B1 = (
    (16, 128, 2048),
    (100, 512, 2048),
    (300, 2048, 4096),
    (256, 1024, 8192),
    (512, 2048, 16384),
    (64, 8192, 16384),
    (33, 16384, 65536),
    (1024, 4096, 16384),
    (4096, 4096, 16384),
    (2048, 4096, 32768),
    (4096, 8192, 32768),
    (8192, 8192, 16384),
    (8192, 8192, 65536),
    (8192, 16384, 65536),
)


@dataclass(frozen=True)
class Pair:
    """A problem and the index of a template."""

    problem: Problem
    template: int


def pairs(dtype: Dtype, shapes: Sequence[tuple[int, int, int]]) -> list[Pair]:
    """Each shape with another of the nine templates; neighbours differ in the tile."""
    bit_op = "and" if dtype == "b1" else None
    problems = [Problem(dtype=dtype, bit_op=bit_op, m=m, n=n, k=k) for m, n, k in shapes]
    return [Pair(problem, (6 + 4 * i) % 9) for i, problem in enumerate(problems)]


PAIRS = pairs("s8", S8) + pairs("b1", B1)


def compare(chosen: Sequence[Pair]) -> dict[str, Any]:
    """Time the pairs by both clocks and judge."""
    device, space = live.pick_device(), load_space(clock_setup.SPACE)
    jobs = [(pair, name) for pair in chosen for name in PROTOCOLS]
    with ExitStack() as stack:
        runners = {}
        for dtype in dict.fromkeys(pair.problem.dtype for pair in chosen):
            problems = [pair.problem for pair in chosen if pair.problem.dtype == dtype]
            opened = live.open_runner(device, space, dtype, problems[0].bit_op, problems, seed=clock_setup.SEED)
            runners[dtype] = stack.enter_context(opened)
        first = next(iter(runners.values()))
        clock_setup.warm_up(first, chosen[len(chosen) // 3].problem)
        about = clock_setup.about(first)
        bare = [attempt(time_alone, runners[pair.problem.dtype], pair, name) for pair, name in jobs]
        recorder = stack.enter_context(Recorder())
        for pair in {pair.problem.dtype: pair for pair in chosen}.values():
            prove(runners[pair.problem.dtype], pair, "cold", held=False)  # what CUPTI sets up may wait for the stream
        empty = attempt(empty_launch, first, recorder)
        both = [attempt(time_recorded, runners[pair.problem.dtype], pair, name, recorder) for pair, name in jobs]
    if empty is None:
        raise RuntimeError("without a record of the empty kernel nothing can be compared")
    bare_adds_ns = about["clock"]["empty_launch_ns"] - empty["cupti_ns"]
    times = zip(jobs, bare, both, strict=True)
    rows = [row(*job, empty["adds_ns"], bare_adds_ns, alone, two) for job, alone, two in times if alone and two]
    about["versions"]["cupti"] = str(recorder.version)
    figures = {name: summary(rows, name, about["clock"]["empty_interval_ns"]) for name in PROTOCOLS}
    about |= {"samples": SAMPLES, "failed": len(jobs) - len(rows), "empty_launch": empty}
    return about | {"summary": figures, "rows": rows}


def attempt(take: Callable[..., T], *arguments: Any) -> T | None:
    """One pair that fails must not lose the others; it is counted."""
    try:
        return take(*arguments)
    except (RuntimeError, MeasureError) as error:
        print(error, file=sys.stderr)
        return None


def time_alone(runner: GpuRunner, pair: Pair, name: ProtocolName) -> dict[str, Any]:
    """Intervals without CUPTI, and what an interval adds by them alone: 2 I(n) - I(2 n) for n and 2 n launches."""
    launches, intervals = sample(runner, pair, name)
    if name == "cold":
        return {"launches": launches, "bare_ns": median(intervals), "added_ns": None}
    _, doubled = sample(runner, pair, name, launches=2 * launches)
    added_ns = 2 * median(intervals) - median(doubled)
    return {"launches": launches, "bare_ns": median(intervals), "added_ns": added_ns}


def empty_launch(runner: GpuRunner, recorder: Recorder) -> dict[str, float]:
    """An event pair around a kernel that does nothing, that kernel's time by CUPTI, and what the pair adds to it.

    Raises:
        RuntimeError: CUPTI has no record of it.
    """
    with recorder.recording() as kernels:
        event_ns = runner.clock().empty_launch_ns
    times = [kernel.end_ns - kernel.start_ns for kernel in kernels if "do_nothing" in kernel.name]
    if not times:
        raise RuntimeError("CUPTI has no record of the empty kernel")
    return {"event_ns": event_ns, "cupti_ns": median(times), "adds_ns": event_ns - median(times)}


def sample(runner: GpuRunner, pair: Pair, name: ProtocolName, launches: int = 0) -> tuple[int, list[int]]:
    """Launches in a sample, and the distances of the events in ns."""
    trial, number = prove(runner, pair, name, launches)
    return number, timed(trial, pair)


def prove(
    runner: GpuRunner, pair: Pair, name: ProtocolName, launches: int = 0, held: bool = True
) -> tuple[GpuTrial, int]:
    """Set the pair up; how many launches a sample has.

    Raises:
        RuntimeError: the template is not exact or cannot run.
    """
    trial = runner.prove(pair.problem, clock_setup.protocol(name), [pair.template], launches=launches, held=held)
    begun = trial.begin()
    if begun.failures:
        raise RuntimeError(f"{pair.problem!r}: {begun.failures[pair.template].reason}")
    return trial, begun.launches[pair.template]


def timed(trial: GpuTrial, pair: Pair) -> list[int]:
    """``SAMPLES`` distances of the events in ns.

    Raises:
        RuntimeError: the output was wrong.
    """
    elapsed_ns, failures = trial.sample([pair.template] * SAMPLES)
    if failures:
        raise RuntimeError(f"{pair.problem!r}: {failures[pair.template].reason}")
    return elapsed_ns


def time_recorded(runner: GpuRunner, pair: Pair, name: ProtocolName, recorder: Recorder) -> tuple[list[int], list[int]]:
    """Distances of the events, and CUPTI's times of the same samples."""
    trial, launches = prove(runner, pair, name)
    with recorder.recording() as kernels:
        events = timed(trial, pair)
    return events, spans(kernels, launches, SAMPLES, clock_setup.WARM_UP[name])


def spans(kernels: Sequence[Kernel], launches: int, samples: int, warm_up: int) -> list[int]:
    """From the start of the first launch to the end of the last one of each sample, in ns.

    The templates' kernels alone count, and of these not the first ``warm_up`` ones. Where a hold of the stream expired,
    all were taken again: the last ones count.

    Raises:
        RuntimeError: records are missing.
    """
    ours = [kernel for kernel in kernels if "cutlass" in kernel.name]
    timed, expected = launches * samples, launches * samples + warm_up
    if not ours or len(ours) % expected:
        raise RuntimeError(f"CUPTI has {len(ours)} records of the templates' kernels, {expected} were launched")
    last = ours[-timed:]
    return [last[i + launches - 1].end_ns - last[i].start_ns for i in range(0, timed, launches)]


def agree(ours_ns: float, cupti_ns: float) -> bool:
    """Within 3 % or 0.3 us, whichever is more."""
    return abs(ours_ns - cupti_ns) <= max(RELATIVE * cupti_ns, ABSOLUTE_NS)


def row(
    pair: Pair,
    name: ProtocolName,
    adds_ns: float,
    bare_adds_ns: float,
    alone: dict[str, Any],
    both: tuple[list[int], list[int]],
) -> dict[str, Any]:
    """All medians of one pair under one protocol.

    ``adds_ns`` is what an event pair adds to CUPTI's time of an empty kernel, ``bare_adds_ns`` the same where CUPTI
    does not record.
    """
    events, cupti = both
    event_ns, cupti_ns = median(events), median(cupti)
    shape = pair.problem.model_dump(include={"dtype", "m", "n", "k"})
    return (
        shape
        | {"template": pair.template, "protocol": name}
        | alone
        | {
            "event_ns": event_ns,
            "cupti_ns": cupti_ns,
            "difference_ns": median(e - c for e, c in zip(events, cupti, strict=True)),
            "agrees": agree(event_ns - adds_ns, cupti_ns),
            "bare_agrees": agree(alone["bare_ns"] - bare_adds_ns, cupti_ns),
        }
    )


def summary(rows: Sequence[dict[str, Any]], name: ProtocolName, empty_interval_ns: float) -> dict[str, Any]:
    """Of one protocol: how many agree, what an event pair adds to CUPTI's time, and whether CUPTI disturbs.

    ``difference_ns``: events less CUPTI, nothing subtracted, for launches below 30 us; ``bare_difference_ns``: the same
    with the events of the first pass. ``added_ns``: an estimate that needs no CUPTI. ``agrees_less_empty_interval``:
    the share that agrees if the interval of two events with nothing at all in between is subtracted instead.
    """
    mine = [r for r in rows if r["protocol"] == name]
    short = [r for r in mine if r["cupti_ns"] < SHORT_NS * r["launches"]] or mine
    added = [r["added_ns"] for r in short if r["added_ns"] is not None]
    return {
        "n": len(mine),
        "from_ns": min(r["cupti_ns"] / r["launches"] for r in mine),
        "to_ns": max(r["cupti_ns"] / r["launches"] for r in mine),
        "agrees": share(r["agrees"] for r in mine),
        "bare_agrees": share(r["bare_agrees"] for r in mine),
        "agrees_less_empty_interval": share(agree(r["event_ns"] - empty_interval_ns, r["cupti_ns"]) for r in mine),
        "difference_ns": clock_setup.quantiles([r["difference_ns"] for r in short]),
        "bare_difference_ns": clock_setup.quantiles([r["bare_ns"] - r["cupti_ns"] for r in short]),
        "added_ns": clock_setup.quantiles(added) if added else None,
        "disturbed": clock_setup.quantiles([r["event_ns"] / r["bare_ns"] - 1 for r in mine]),
    }


def share(flags: Any) -> float:
    """Of the flags that are set."""
    values = list(flags)
    return round(sum(values) / len(values), 4)


if __name__ == "__main__":
    result = compare(PAIRS)
    print(*(f"{name}: {figures}" for name, figures in result["summary"].items()), sep="\n")
    clock_setup.write(Path(sys.argv[1]), result)
