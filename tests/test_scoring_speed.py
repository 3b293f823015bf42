"""What `tilearena score` takes beside training: ten seconds at most for all predictors on lowbit-full; 0.3 s for help.

With ``--benchmark-enable`` both are timed by pytest-benchmark.
"""

import os
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

from tilearena.final import is_final
from tilearena.judge import Sources, judge
from tilearena.plugins import discover
from tilearena.score import Key, constant_pick, rank

N_PREDICTORS = len(discover())
LIMIT_S, HELP_LIMIT_S = 10, 0.3
KEY = Key(
    op="gemm",
    spec="lowbit-full",
    space="paper9",
    dtype="s8",
    protocol="cold",
    device="nvidia-h200",
    split="random",
    predictor="gbdt",
    version="1",
    train_spec="lowbit-full",
    support="native",
)


def picks_of(sources):
    """As predictors would choose that err by 0, 5, 10 ... %."""
    table = sources.test.table
    rng = np.random.default_rng(0)
    for i in range(N_PREDICTORS):
        noise = 0.05 * i * rng.standard_normal(table.time_ns.shape)
        yield rank(np.log(table.time_ns) + noise)[:, :8]


@pytest.mark.benchmark(group="score all predictors on lowbit-full, both dtypes (host time, intervals included)")
def test_scoring_all_predictors_on_lowbit_full_is_fast(benchmark, checkout):
    """By processor time, since other processes may be busy; of one protocol, as `tilearena score` does it."""
    subjects = []
    for dtype in ("s8", "b1"):
        key = KEY.model_copy(update={"dtype": dtype})
        sources = Sources.open(checkout, key)
        table = sources.test.table
        open_ = ~is_final(table.problems)
        constant = np.full(len(table.problems), constant_pick(table.take(open_)))
        subjects.append((key, sources, open_, constant, list(picks_of(sources))))

    def score_all():
        started = time.process_time()
        scores = [
            [judge(sources, key, own, constant, predict_us=1.0, reason="", seed=0, intervals=True) for own in picks]
            for key, sources, _, constant, picks in subjects
        ]
        return scores, time.process_time() - started

    found, seconds = benchmark.pedantic(score_all, rounds=3 if benchmark.enabled else 1)
    assert seconds < LIMIT_S
    for scores, (_, _, open_, _, _) in zip(found, subjects, strict=True):
        assert {s.n_problems for s in scores} == {open_.sum()}
        assert scores[0].figures["regret_max"].value == 0
        regrets = [s.figures["regret_mean"] for s in scores]
        assert all(a.value < b.value for a, b in pairwise(regrets))
        assert all(r.lo < r.value < r.hi for r in regrets[1:])


@pytest.mark.benchmark(group="tilearena --help (processor time of a fresh process)")
def test_help_is_there_at_once(benchmark):
    """By processor time; the least of five runs."""
    program = [sys.executable, "-c", "from tilearena.cli import main; main()", "--help"]

    def run():
        before = os.times()
        done = subprocess.run(program, capture_output=True, text=True, check=True)
        after = os.times()
        assert "measure" in done.stdout
        return after.children_user + after.children_system - before.children_user - before.children_system

    taken = [run() for _ in range(5)]
    assert min(taken) < HELP_LIMIT_S
    benchmark(run)
