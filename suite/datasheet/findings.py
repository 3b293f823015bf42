"""What the recordings say about the choice: what it is worth, how far it carries, what speed is reached."""

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from tilearena.agreement import carried
from tilearena.datasheet.collection import Collection, Held
from tilearena.datasheet.roofline import PEAKS, moved_bytes, operations
from tilearena.datasheet.tables import cards_of, table
from tilearena.figures import measured
from tilearena.judge import cublaslt_ns
from tilearena.table import Floats

#: What both are of, and two recordings that have problems in common.
Pair = tuple[str, Held, Held]


def speedup(one: Held) -> Floats:
    """t(default) / t(best) of the problems where both have a time."""
    timed = one.recording.table
    default, best = timed.time_ns[:, timed.task.default], timed.time_ns.min(axis=1)
    known = np.isfinite(default)
    ratio: Floats = default[known] / best[known]
    return ratio


def default_best(one: Held) -> float:
    """Share of these problems where no template is faster than the default."""
    return float((speedup(one) == 1).mean())


def geomean(ratios: Floats) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(ratios).mean()))


def worth(collection: Collection) -> list[str]:
    """The best template over the default and over cuBLASLt."""
    head = ("recording", "device", "problems", "best over default", "95 %", "largest", "default is best")
    rows = []
    for one in collection.firsts:
        ratios, timed = speedup(one), one.recording.table
        winners = np.bincount(np.argmin(timed.time_ns[measured(timed)], axis=1), minlength=timed.time_ns.shape[1])
        top, known = int(winners.argmax()), len(ratios) > 0
        vendor = cublaslt_ns(one.recording)
        over = "-"
        if vendor is not None and (both := np.isfinite(vendor) & measured(timed)).any():
            over = f"{geomean(vendor[both] / timed.time_ns[both].min(axis=1)):.3f}x"
        rows.append(
            (
                _marked(one),
                f"`{one.header.device.slug}`",
                f"{len(ratios):,}",
                f"{geomean(ratios):.3f}x" if known else "-",
                f"{np.quantile(ratios, 0.95):.2f}x" if known else "-",
                f"{ratios.max():.2f}x" if known else "-",
                f"{default_best(one):.2%}" if known else "-",
                f"{timed.task.templates[top].label} ({winners[top] / winners.sum():.0%})" if winners.any() else "-",
                str(int((winners > 0).sum())),
                over,
            )
        )
    return table((*head, "most frequent best", "templates that win", "best over cuBLASLt"), rows)


def _marked(one: Held) -> str:
    return one.name + (" (emulated)" if one.header.support == "emulated" else "")


def reached(collection: Collection) -> list[str]:
    """The largest rates of the best template of whole cards and partitions."""
    head = ("recording", "device", "largest TOPS", "of the peak", "largest GB/s", "of the peak")
    rows = []
    for one in collection.firsts:
        timed, header = one.recording.table, one.header
        timed = timed.take(measured(timed))
        if not len(timed.problems):
            continue
        best_ns = timed.time_ns.min(axis=1)
        tops = float((operations(timed.problems) / best_ns).max()) / 1e3
        rate = float((moved_bytes(timed.problems, header.dtype) / best_ns).max())
        peak = PEAKS.get(header.device.product)
        most = None if peak is None else peak.tops.get(header.dtype)
        # a partition has the memory of the whole card, and a part of its tensor cores
        share = header.device.sm_count / (header.device.sm_total or header.device.sm_count)
        rows.append(
            (
                _marked(one),
                f"`{header.device.slug}`",
                f"{tops:,.0f}",
                "-" if most is None else f"{tops / (most * share):.0%}",
                f"{rate:,.0f}",
                "-" if peak is None or header.protocol.name == "hot" else f"{rate / peak.dram_gb_s:.0%}",
            )
        )
    return table(head, rows)


def agreement(pairs: Iterable[Pair]) -> list[str]:
    """How the choice of one recording does by the times of another, and the other way."""
    head = ("recording", "one", "the other", "problems", "same best", "tied", "mean regret", "95 %", "largest")
    rows = []
    for name, one, other in pairs:
        both = carried(one.recording, other.recording), carried(other.recording, one.recording)
        rows.append(
            (
                name,
                _who(one, other),
                _who(other, one),
                f"{both[0]['problems']:,}",
                f"{both[0]['same_best']:.1%}",
                " / ".join(f"{found['tied']:.1%}" for found in both),
                " / ".join(f"{found['regret_mean']:.2%}" for found in both),
                " / ".join(f"{found['regret_p95']:.1%}" for found in both),
                " / ".join(f"{found['regret_max']:.0%}" for found in both),
            )
        )
    return table(head, rows) if rows else ["No two recordings of this kind are there."]


def _who(one: Held, other: Held) -> str:
    """What tells it from the other one."""
    mine, theirs = one.header, other.header
    if mine.protocol.name != theirs.protocol.name:
        return mine.protocol.name
    if mine.device.slug != theirs.device.slug:
        return f"`{mine.device.slug}`"
    cards = ", ".join(card[:4] for card in cards_of(one)) or "?"
    return f"{'repeat' if one.is_repeat else 'first'} ({cards})"


def hot_and_cold(collection: Collection) -> Iterator[Pair]:
    """The protocols, of everything that has both."""
    for cold in collection.firsts:
        hot = collection.like(cold, protocol="hot")
        if cold.header.protocol.name == "cold" and hot is not None:
            yield f"{cold.subject}, `{cold.header.device.slug}`", hot, cold


def whole_and_part(collection: Collection) -> Iterator[Pair]:
    """The whole card and a partition of its SMs."""
    for part in collection.firsts:
        if part.header.device.sm_total is not None and (whole := whole_card(collection, part)) is not None:
            yield part.name, whole, part


def first_and_repeat(collection: Collection) -> Iterator[Pair]:
    """A recording and its repeat."""
    for first in collection.firsts:
        if (repeat := collection.like(first, repeat=True)) is not None:
            yield f"{first.name}, `{first.header.device.slug}`", first, repeat


def card_and_card(collection: Collection) -> Iterator[Pair]:
    """Two whole cards of one product that were recorded under different slugs."""
    whole = [device for device in collection.devices if device.sm_total is None]
    for one, other in combinations(whole, 2):
        if one.product == other.product:
            for held in collection.of(one.slug):
                twin = collection.like(held, device=other.slug)
                if not held.is_repeat and twin is not None:
                    yield held.name, held, twin


def whole_card(collection: Collection, part: Held) -> Held | None:
    """The recording of the same on all SMs of the product, of the same instance where there is one."""
    own = part.header.device.slug.removesuffix(f"-sm{part.header.device.sm_count}")
    for device in sorted(collection.devices, key=lambda device: device.slug != own):
        whole = collection.like(part, device=device.slug)
        same = (device.product, device.sm_count) == (part.header.device.product, part.header.device.sm_total)
        if same and whole is not None:
            return whole
    return None
