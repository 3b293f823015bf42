"""What was recorded, where, in what state, and what failed: Markdown tables, every figure computed."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from tilearena.dataset import Candidate
from tilearena.datasheet.collection import Collection, Held
from tilearena.figures import judge, measured
from tilearena.score import rank

#: Bit of NVML's mask of reasons for lower clocks: the software power cap (nvml.h).
POWER_CAP = 4


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a Markdown table, whatever its cells hold."""
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in (head, ["---"] * len(head), *rows)]


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|")


def cards_of(one: Held) -> list[str]:
    """Hashes of the UUIDs of the cards that measured it, sorted."""
    return sorted({batch.card for batch in one.header.batches if batch.card})


def date_of(one: Held) -> str:
    """Day on which it was begun, ISO 8601."""
    return ascii(one.header.started_at)[1:11]


def devices(collection: Collection) -> list[str]:
    """What was measured on, a row a device."""
    head = ("device", "product", "SMs", "L2, MB", "memory, GB", "driver", "power limit", "cards (hash of the UUID)")
    rows = []
    for device in collection.devices:
        mine = collection.of(device.slug)
        sms = f"{device.sm_count} of {device.sm_total}" if device.sm_total else f"all {device.sm_count}"
        cards = sorted({card for one in mine for card in cards_of(one)})
        drivers = sorted({one.header.device.driver or "?" for one in mine})
        rows.append(
            (
                f"`{device.slug}`",
                f"{device.product} (sm_{device.arch})",
                sms,
                f"{device.l2_bytes / 1e6:.0f}",
                f"{device.memory_bytes / 1e9:.0f}",
                ", ".join(drivers),
                "-" if device.power_limit_w is None else f"{device.power_limit_w:.0f} W",
                ", ".join(f"`{card}`" for card in cards) or "-",
            )
        )
    return table(head, rows)


def sizes(held: Sequence[Held]) -> list[str]:
    """Rows, bytes and seconds of each recording."""
    head = ("recording", "problems", "rows", "samples", "kB", "device time, s", "date", "fingerprint")
    rows = (
        (
            one.name,
            f"{len(one.recording.table.problems):,}",
            f"{len(one.recording.rows):,}",
            f"{n_samples(one):,}",
            f"{one.n_bytes / 1e3:,.0f}",
            f"{one.header.wall_time_s:.1f}",
            date_of(one),
            f"`{one.header.fingerprint}`",
        )
        for one in held
    )
    return table(head, rows)


def n_samples(one: Held) -> int:
    """How often something was timed."""
    return sum(len(chunk.flatten()) for chunk in one.recording.rows["elapsed_ns"].chunks)


def trust(held: Sequence[Held]) -> list[str]:
    """Card, noise floor, drift of the anchors, and the state of the card."""
    head = ("recording", "card", "noise floor", "drift: to the middle", "to the end", "SM clock, MHz", "memory, MHz")
    return table((*head, "most power", "hottest", "at the power limit", "repeated"), map(_trust_row, held))


def _trust_row(one: Held) -> tuple[str, ...]:
    header, states = one.header, [batch.telemetry for batch in one.header.batches]
    capped = sum(bool(state.throttle_reasons & POWER_CAP) for state in states)
    again = sum(batch.attempts > 1 for batch in header.batches)
    middle, end = ([getattr(a, key) for a in header.anchors] for key in ("drift_to_middle", "drift"))
    power = [state.power_w.max for state in states if state.power_w]
    heat = [state.temperature_c.max for state in states if state.temperature_c]
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz]
    memory = [state.memory_clock_mhz for state in states if state.memory_clock_mhz]
    return (
        one.name,
        ", ".join(card[:4] for card in cards_of(one)) or "-",
        "-" if header.noise_floor is None else f"{header.noise_floor:.2%}",
        _drifts(middle),
        _drifts(end),
        _span([c.min for c in clocks], [c.max for c in clocks]),
        _span([c.min for c in memory], [c.max for c in memory]),
        f"{max(power):.0f} W" if power else "-",
        f"{max(heat):.0f} C" if heat else "-",
        f"{capped} of {len(states)}",
        str(again),
    )


def _drifts(drifts: Sequence[float | None]) -> str:
    return ", ".join(f"{drift:+.2%}" for drift in drifts if drift is not None) or "-"


def _span(low: Sequence[float], high: Sequence[float]) -> str:
    if not low:
        return "-"
    return f"{max(high):.0f}" if min(low) == max(high) else f"{min(low):.0f} to {max(high):.0f}"


def ceilings(collection: Collection) -> list[str]:
    """How well the ranking by a repeat does by the times of its recording: what noise leaves to a predictor."""
    head = ("recording", "device", "cards: recording / repeat", "problems", "top1", "top2", "regret")
    rows = []
    for one in collection.firsts:
        repeat = collection.like(one, repeat=True)
        if repeat is None:
            continue
        timed = one.recording.table.take(measured(one.recording.table))
        again = repeat.recording.table
        ranked = rank(timed.time_ns)[:, :1]
        means = judge(timed, ranked, repeat=again, noise_floor=None, constant_picks=None, vendor_ns=None).means
        figures = [means[f"ceiling_{key}"] for key in ("top1", "top2", "regret_mean")]
        known = ~np.isnan(figures[0])
        top1, top2, regret = (float(values[known].mean()) for values in figures) if known.any() else (np.nan,) * 3
        both = " / ".join(", ".join(card[:4] for card in cards_of(held)) or "-" for held in (one, repeat))
        slug = one.header.device.slug
        shares = (f"{top1:.2%}", f"{top2:.2%}", f"{regret:.3%}")
        rows.append((one.name, f"`{slug}`", both, f"{known.sum():,}", *shares))
    return table(head, rows) if rows else ["No recording has a repeat."]


def failures(collection: Collection) -> list[str]:
    """Rows without a time by reason.

    A row here is the templates of a space, those that add in memory apart, or one other candidate, with one status and
    reason; numbers in the reasons of templates are left out.
    """
    failed: Counter[tuple[str, ...]] = Counter()
    extents: dict[tuple[str, ...], list[int]] = {}
    total: Counter[tuple[str, ...]] = Counter()
    for one in collection.held:
        header = one.header
        who = [(header.dtype, header.space, _kind(candidate)) for candidate in header.candidates]
        rows = one.recording.rows.select(["m", "candidate", "status", "reason"])
        for candidate, count in Counter(rows["candidate"].to_pylist()).items():
            total[who[candidate]] += count
        status = np.array(rows["status"].to_pylist())
        for row in rows.take(np.flatnonzero(status != "ok")).to_pylist():
            template = header.candidates[row["candidate"]].origin == "template"
            reason = re.sub(r"\d+", "...", row["reason"]) if template else row["reason"]
            key = (*who[row["candidate"]], row["status"], reason)
            failed[key] += 1
            extents.setdefault(key, []).append(row["m"])
    if not failed:
        return ["Nothing failed."]
    head = ("dtype", "space", "candidate", "status", "reason", "rows", "of", "M of those that failed")
    return table(
        head,
        (
            (*key, f"{count:,}", f"{total[key[:3]]:,}", f"{min(extents[key])} to {max(extents[key])}")
            for key, count in sorted(failed.items())
        ),
    )


def _kind(candidate: Candidate) -> str:
    if candidate.origin != "template" or candidate.template is None:
        return candidate.id
    return "templates that add in memory" if candidate.template.adding else "templates"


def spaces(collection: Collection) -> list[str]:
    """Which templates competed, a row a space and dtype."""
    found: dict[tuple[str, str], list[Held]] = {}
    for one in collection.held:
        found.setdefault((one.header.space, one.header.dtype), []).append(one)
    head = ("space", "dtype", "templates", "on mma.sync", "on wgmma", "of these with split-K or stream-K", "recordings")
    rows = []
    for (space, dtype), held in found.items():
        templates = held[0].recording.templates
        native = sum(t.generator == "cutlass3" for t in templates)
        shared = sum(t.split_k > 1 or t.stream_k for t in templates)
        rows.append((f"`{space}`", dtype, len(templates), len(templates) - native, native, shared, len(held)))
    return table(head, rows)
