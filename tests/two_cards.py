"""Two cards of one product side by side: ``python tests/two_cards.py OUT.json ALONE0 ALONE1 TOGETHER...``.

ALONE0 and ALONE1 are roots below which the one and the other card recorded lowbit-random alone (``measure --gpu 0`` and
``--gpu 1``), TOGETHER those where both shared the problems (``--workers 2``, or ``--scheduler``). Says how far a choice
by one card carries to the other, how much faster both are, and whether measuring at the same time disturbs either.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilearena import dataset
from tilearena.dataset import Floats, Recording
from tilearena.root import find_path

DEVICE, SPEC, SPACE = "nvidia-h200", "lowbit-random", "paper9"
KINDS = tuple((dtype, protocol) for dtype in ("s8", "b1") for protocol in ("cold", "hot"))
#: As the score's: no more than this is a tie.
MOST_TIE = 0.02


def carried(chooser: Recording, judge: Recording) -> dict[str, float]:
    """How good the best templates of ``chooser`` are by the times of ``judge``, on the problems that both have.

    ``same_best`` and ``tied`` (within the noise floor of ``judge``, at most 2 %) are shares, regrets are fractions.
    """
    chosen_ns, judged_ns = chooser.table.time_ns, judge.table.time_ns
    both = np.isfinite(chosen_ns).any(axis=1) & np.isfinite(judged_ns).any(axis=1)
    chosen_ns, judged_ns = chosen_ns[both], judged_ns[both]
    picks, best_ns = np.argmin(chosen_ns, axis=1), judged_ns.min(axis=1)
    regret = judged_ns[np.arange(len(picks)), picks] / best_ns - 1
    tie = min(MOST_TIE, judge.header.noise_floor or 0.0)
    return {
        "problems": len(picks),
        "same_best": round(float((picks == np.argmin(judged_ns, axis=1)).mean()), 4),
        "tied": round(float((regret <= tie).mean()), 4),
        "regret_mean": round(float(regret.mean()), 6),
        "regret_p95": round(float(np.quantile(regret, 0.95)), 6),
        "regret_max": round(float(regret.max()), 6),
    }


def ratios(before_ns: Floats, after_ns: Floats) -> dict[str, float]:
    """Geometric mean and quantiles of after / before over all finite times."""
    both = np.isfinite(before_ns) & np.isfinite(after_ns)
    ratio = after_ns[both] / before_ns[both]
    quantiles = np.quantile(ratio, [0.05, 0.5, 0.95])
    named = dict(zip(("p05", "p50", "p95"), (round(float(q), 5) for q in quantiles), strict=True))
    return {"geomean": round(float(np.exp(np.log(ratio).mean())), 5)} | named


def rows_per_s(recording: Recording) -> float:
    """Of the templates."""
    return round(recording.table.time_ns.size / recording.header.wall_time_s, 1)


def disturbed(together: Recording, alone: Sequence[Recording]) -> dict[str, dict[str, Any]]:
    """By card: its times while the other one measured over those while it was alone, on the problems that it got.

    Raises:
        ValueError: other cards measured together than alone.
    """
    known = [recording.header.device.uuid_sha256 for recording in alone]
    cards = np.array(together.cards, dtype=object)
    if sorted(set(cards)) != sorted(known):
        raise ValueError(f"{sorted(set(cards))} measured together, and alone {known}")
    found = {}
    for i, recording in enumerate(alone):
        mine = cards == known[i]
        times = ratios(recording.table.time_ns[mine], together.table.time_ns[mine])
        found[f"card{i}"] = {"problems": int(mine.sum())} | times
    return found


def compare(alone: Sequence[Recording], together: dict[str, Recording]) -> dict[str, Any]:
    """All figures of one dtype and protocol.

    Raises:
        ValueError: their problems, or the cards, differ.
    """
    first, second = alone
    for recording in (second, *together.values()):
        if not np.array_equal(recording.table.problems, first.table.problems):
            raise ValueError("the recordings have other problems, or in another order; record them in one go")
    speeds = {"alone": [rows_per_s(recording) for recording in alone]}
    return {
        "times_card1_over_card0": ratios(first.table.time_ns, second.table.time_ns),
        "card0_by_card1": carried(first, second),
        "card1_by_card0": carried(second, first),
        "rows_per_s": speeds | {name: rows_per_s(recording) for name, recording in together.items()},
        "disturbed": {name: disturbed(recording, alone) for name, recording in together.items()},
    }


def main(out: Path, *roots: Path) -> None:
    """Read the recordings, compare, write."""
    result: dict[str, Any] = {}
    for dtype, protocol in KINDS:
        found = [dataset.read(find_path(root, DEVICE, SPEC, SPACE, dtype, protocol)) for root in roots]
        together = {str(root): recording for root, recording in zip(roots[2:], found[2:], strict=True)}
        result[f"{dtype} {protocol}"] = compare(found[:2], together)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(out.read_text())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
