"""How far the choice of one recording carries to another: hot to cold, a card to its partition, a run to the next."""

import numpy as np

from tilearena.dataset import Recording
from tilearena.errors import RecordingError
from tilearena.figures import MAX_TIE_BAND, measured, picked
from tilearena.splits import shape_codes
from tilearena.table import Table


def matched(one: Table, other: Table) -> tuple[Table, Table]:
    """Both on the problems that both have times of, in the same order."""
    one, other = one.take(measured(one)), other.take(measured(other))
    _, here, there = np.intersect1d(shape_codes(one.problems), shape_codes(other.problems), return_indices=True)
    return one.take(here), other.take(there)


def carried(chooser: Recording, judge: Recording) -> dict[str, float]:
    """How good the best templates of ``chooser`` are by the times of ``judge``, on the problems that both have.

    ``same_best`` and ``tied`` (within the noise floor of ``judge``, at most 2 %) are shares, regrets are fractions. A
    template that failed in ``judge`` counts as its slowest feasible one.

    Raises:
        RecordingError: they have no problem in common, or other templates.
    """
    if chooser.templates != judge.templates:
        raise RecordingError("two recordings of other templates cannot be compared; record one of them again")
    one, other = matched(chooser.table, judge.table)
    if not len(one.problems):
        raise RecordingError("two recordings without a common problem cannot be compared; record the same workload")
    judged_ns = other.time_ns
    picks, best_ns = np.argmin(one.time_ns, axis=1), judged_ns.min(axis=1)
    regret = picked(judged_ns, picks[:, None])[0][:, 0] / best_ns - 1
    tie = min(MAX_TIE_BAND, judge.header.noise_floor or 0.0)
    return {
        "problems": len(picks),
        "same_best": round(float((picks == np.argmin(judged_ns, axis=1)).mean()), 4),
        "tied": round(float((regret <= tie).mean()), 4),
        "regret_mean": round(float(regret.mean()), 6),
        "regret_p95": round(float(np.quantile(regret, 0.95)), 6),
        "regret_max": round(float(regret.max()), 6),
    }
