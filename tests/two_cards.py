"""Two cards of one product side by side: ``python tests/two_cards.py OUT.json ALONE0 ALONE1 WORKERS DASK``.

Each is a folder of recordings of lowbit-random, ``<root>/baselines/recordings/<device>/lowbit-random``: of the one and
the other card alone, each with its repeat (``measure --gpu 0 --instance``), and of both sharing the problems
(``--workers 2``, ``--scheduler``). docs/measure-your-gpu.md has all commands. Says how far a choice by one card carries
to the other and to its own repeat, how much faster both are and what the rest is lost to, and whether measuring at the
same time disturbs either.
"""

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tilearena import dataset
from tilearena.agreement import carried
from tilearena.dataset import Recording
from tilearena.table import Floats

KINDS = tuple((dtype, protocol) for dtype in ("s8", "b1") for protocol in ("cold", "hot"))
#: How both cards shared the problems.
HOW = ("--workers 2", "--scheduler")


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


def lost(together: Recording) -> dict[str, float]:
    """Shares of the cards' seconds, the mean of all cards, in which they measured no batch.

    ``between``: from one batch to the next, the middle anchors among them; ``ends``: before a card's first batch and
    after its last, while another one measured.
    """
    batches, wall_s = together.header.batches, together.header.wall_time_s
    shares: dict[str, list[float]] = {"between": [], "ends": []}
    for card in sorted({str(batch.card) for batch in batches}):
        mine = sorted((b for b in batches if str(b.card) == card), key=lambda batch: batch.started_at_s)
        gaps_s = [after.started_at_s - (before.started_at_s + before.seconds) for before, after in pairwise(mine)]
        ended_s = mine[-1].started_at_s + mine[-1].seconds
        shares["between"].append(sum(gaps_s) / wall_s)
        shares["ends"].append((wall_s - (ended_s - mine[0].started_at_s)) / wall_s)
    return {name: round(float(np.mean(share)), 4) for name, share in shares.items()}


def disturbed(together: Recording, alone: Sequence[Recording]) -> dict[str, dict[str, Any]]:
    """By card: its times while the other one measured over those while it was alone, on the problems that it got.

    Raises:
        ValueError: other cards measured together than alone.
    """
    known = [recording.header.device.uuid_sha256 for recording in alone]
    cards = np.array(together.cards, dtype=object)
    if sorted(set(cards)) != sorted(known):
        raise ValueError(f"{sorted(set(cards))} measured together, and alone {known}")
    rank = _rank(together, alone[0])
    found = {}
    for i, recording in enumerate(alone):
        mine = cards == known[i]
        times = ratios(recording.table.time_ns[rank][mine], together.table.time_ns[mine])
        found[f"card{i}"] = {"problems": int(mine.sum())} | times
    return found


def _rank(one: Recording, other: Recording) -> Any:
    """Where the problems of ``one`` are in ``other``: several cards finish their batches in any order."""
    places = {problem: i for i, problem in enumerate(map(tuple, other.table.problems.tolist()))}
    problems = list(map(tuple, one.table.problems.tolist()))
    if sorted(problems) != sorted(places):
        raise ValueError("the recordings have other problems")
    return np.array([places[problem] for problem in problems])


def compare(alone: Sequence[Recording], repeats: Sequence[Recording], together: dict[str, Recording]) -> dict[str, Any]:
    """All figures of one dtype and protocol.

    Raises:
        ValueError: their problems, or the cards, differ.
    """
    first, second = alone
    for recording in (second, *repeats):
        if not np.array_equal(recording.table.problems, first.table.problems):
            raise ValueError("the recordings have other problems, or in another order")
    each = [[rows_per_s(one), rows_per_s(again)] for one, again in zip(alone, repeats, strict=True)]
    found: dict[str, Any] = {
        "times_card1_over_card0": ratios(first.table.time_ns, second.table.time_ns),
        "times_repeat_over_first": [
            ratios(one.table.time_ns, again.table.time_ns) for one, again in zip(alone, repeats, strict=True)
        ],
        "card0_by_card1": carried(first, second),
        "card1_by_card0": carried(second, first),
        "by_own_repeat": [carried(one, again) for one, again in zip(alone, repeats, strict=True)],
        "rows_per_s_alone": each,
        "lost_alone": [lost(recording) for recording in alone],
        "together": {},
    }
    for name, recording in together.items():
        speed = rows_per_s(recording)
        found["together"][name] = {
            "rows_per_s": speed,
            "times_one_card": round(speed / float(np.mean(each)), 3),
            "lost": lost(recording),
            "by_alone": [carried(recording, one) for one in alone],
            "disturbed": disturbed(recording, alone),
        }
    return found


def main(out: Path, alone0: Path, alone1: Path, workers: Path, dask: Path) -> None:
    """Read the recordings in these folders, compare, write."""
    result: dict[str, Any] = {}
    for dtype, protocol in KINDS:
        name = f"gemm.paper9.{dtype}.{protocol}"
        alone = [dataset.read(folder / f"{name}.parquet") for folder in (alone0, alone1)]
        repeats = [dataset.read(folder / f"{name}.repeat.parquet") for folder in (alone0, alone1)]
        together = {
            how: dataset.read(folder / f"{name}.parquet") for how, folder in zip(HOW, (workers, dask), strict=True)
        }
        headers = [recording.header for recording in alone]
        result.setdefault("date", headers[0].started_at[:10])
        result.setdefault("device", headers[0].device.model_dump(mode="json", exclude={"uuid_sha256", "slug"}))
        result.setdefault("cards", [header.device.uuid_sha256 for header in headers])
        result.setdefault("versions", headers[0].versions)
        result.setdefault("kinds", {})[f"{dtype} {protocol}"] = compare(alone, repeats, together)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(out.read_text())


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
