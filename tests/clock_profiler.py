"""cutlass_profiler's method beside ours: ``python tests/clock_profiler.py OUT.json``, about 170 s.

150 problems of lowbit-random (every 13th), s8, the nine templates of paper9, everything twice. The profiler's method,
as its defaults are: one template after the other, 50 ms of sleep, 10 launches to warm up, 100 between two events, one
mean; operands rotate through more than three times the L2, and nothing holds the stream. Ours: `race.measure_problems`,
cold and hot, under two seeds. What counts is rows a second, and how good a choice by the first pass is in the second.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clock_setup
import numpy as np

from tilearena import dataset, live
from tilearena.gpu_runner import GpuRunner
from tilearena.race import measure_problems
from tilearena.records import PROTOCOLS, Problem, Protocol, ProtocolName
from tilearena.rows import median_time_ns
from tilearena.spec import load_space, load_workload
from tilearena.table import Floats

PROBLEMS, STEP = 150, 13
SLEEP_S, WARM_UP_LAUNCHES, TIMED_LAUNCHES = 0.05, 10, 100

#: Problems -> time of every template in ns [P, T], inf where it failed.
Pass = Callable[[GpuRunner, list[Problem]], Floats]


def profiler_pass(runner: GpuRunner, problems: list[Problem]) -> Floats:
    """cutlass_profiler's method."""
    which, protocol = clock_setup.templates(runner), clock_setup.protocol("cold")
    time_ns = np.full((len(problems), len(which)), np.inf)
    for p, problem in enumerate(problems):
        for t, template in enumerate(which):
            time_ns[p, t] = profile(runner, problem, protocol, template)
        progress("profiler", p, len(problems))
    return time_ns


def profile(runner: GpuRunner, problem: Problem, protocol: Protocol, template: int) -> float:
    """Mean time of one launch in ns; inf where the template fails."""
    time.sleep(SLEEP_S)
    elapsed_ns = [0]
    for launches in (WARM_UP_LAUNCHES, TIMED_LAUNCHES):
        trial = runner.prove(problem, protocol, [template], launches=launches, held=False)
        if trial.begin().failures:
            return float("inf")
        elapsed_ns, failures = trial.sample([template])
        if failures:
            return float("inf")
    return elapsed_ns[0] / TIMED_LAUNCHES


def our_pass(name: ProtocolName, seed: int) -> Pass:
    """Our clock, with all candidates that ``measure --no-torch`` has; the templates' medians."""
    protocol = load_workload("lowbit-random").protocol(name, "s8").model_copy(update={"seed": seed})

    def _pass(runner: GpuRunner, problems: list[Problem]) -> Floats:
        which = range(len(runner.candidates))
        rows = []
        for p, found in enumerate(measure_problems(runner, protocol, [(problem, which) for problem in problems])):
            rows += found
            progress(name, p, len(problems))
        screens = [protocol.screen_rounds if c.origin == "template" else 0 for c in runner.candidates]
        medians = median_time_ns(dataset.rows_from(rows), np.array(screens))
        return medians.reshape(len(problems), len(which))[:, clock_setup.templates(runner)]

    return _pass


def progress(what: str, done: int, total: int) -> None:
    """Every 25 problems."""
    if (done + 1) % 25 == 0:
        print(f"{what}: {done + 1} of {total}", flush=True)


def repeated(first_ns: Floats, second_ns: Floats) -> dict[str, float]:
    """How good the choice by the first pass [P, T] is, judged by the second: shares, and regrets as fractions.

    ``top2``: the second pass's best is among the first pass's best two. Problems where a pass has no time do not count.
    """
    both = np.isfinite(first_ns).any(axis=1) & np.isfinite(second_ns).any(axis=1)
    first_ns, second_ns = first_ns[both], second_ns[both]
    ranked = np.argsort(first_ns, axis=1, kind="stable")[:, :2]
    best_ns = second_ns.min(axis=1)
    hit = np.take_along_axis(second_ns, ranked, axis=1) == best_ns[:, None]
    regret = second_ns[np.arange(len(ranked)), ranked[:, 0]] / best_ns - 1
    return {
        "top1": round(float(hit[:, 0].mean()), 4),
        "top2": round(float(hit.any(axis=1).mean()), 4),
        "regret_mean": round(float(regret.mean()), 6),
        "regret_max": round(float(regret.max()), 6),
    }


def twice(runner: GpuRunner, problems: list[Problem], method: str, passes: tuple[Pass, Pass]) -> dict[str, Any]:
    """Two whole passes: speed and repeatability, and the medians."""
    begin = time.perf_counter()
    first_ns, second_ns = (take(runner, problems) for take in passes)
    seconds = time.perf_counter() - begin
    rows = int(np.isfinite(first_ns).sum() + np.isfinite(second_ns).sum())
    speed = {"rows": rows, "failed": 2 * first_ns.size - rows, "seconds": round(seconds, 2)}
    speed |= {"rows_per_s": round(rows / seconds, 1)}
    print(method, speed, figures := repeated(first_ns, second_ns), flush=True)
    return {"method": method, **speed, **figures, "time_ns": [as_lists(first_ns), as_lists(second_ns)]}


def as_lists(time_ns: Floats) -> list[list[float | None]]:
    """JSON has no infinity."""
    return [[round(t, 1) if np.isfinite(t) else None for t in row] for row in time_ns.tolist()]


def main(out: Path) -> None:
    """Both methods on the same problems, one after the other."""
    device, space = live.pick_device(), load_space(clock_setup.SPACE)
    workload = load_workload("lowbit-random")
    problems = list(workload.problems_for("s8")[::STEP][:PROBLEMS])
    seed = clock_setup.SEED
    with live.open_runner(device, space, "s8", None, problems, seed=seed) as runner:
        clock_setup.warm_up(runner, problems[0])
        our_pass("cold", seed)(runner, problems[:1])  # what is imported at first use is in no method's time
        about = {"spec_fingerprint": workload.fingerprint, "step": STEP, "n_problems": len(problems)}
        result = clock_setup.about(runner) | about
        ours = [
            twice(runner, problems, f"tilearena {name}", (our_pass(name, seed), our_pass(name, seed + 1)))
            for name in PROTOCOLS
        ]
        theirs = twice(runner, problems, "cutlass_profiler's method", (profiler_pass, profiler_pass))
    clock_setup.write(out, result | {"rows": [theirs, *ours]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
