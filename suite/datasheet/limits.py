"""Known limits of the recordings: each is said only where it holds, with figures from the recordings."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilearena.datasheet.collection import Collection, Held
from tilearena.datasheet.roofline import moved_bytes
from tilearena.datasheet.tables import cards_of, n_samples
from tilearena.records import Status

#: On an H200 a hot launch finds nothing in the L2 from there on, see docs/measuring/dram.json.
HOT_IS_COLD = {"NVIDIA H200": 50_000_000}
#: A drift of the anchors that deserves a word.
FAR = 0.01


def limits(collection: Collection) -> list[str]:
    """The section, a point for each limit."""
    found = (*_products(collection), *_samples(collection), *_emulated(collection), *_hot(collection))
    found = (*found, *_interval(collection), *_drift(collection), *_together(collection), *_adding(collection))
    found = (*found, *_scope(collection))
    return ["## Known limits", "", *(f"- {text}" for text in found), ""]


def _products(collection: Collection) -> Iterator[str]:
    products = sorted({device.product for device in collection.devices})
    cards = {card for one in collection.held for card in cards_of(one)}
    if len(products) == 1:
        yield f"One product: {products[0]}, {len(cards)} cards of it. Nothing here says how another one behaves."
    if any(device.sm_total for device in collection.devices):
        yield (
            "A partition of the SMs (a CUDA green context) has the whole card's L2 and memory, and more power for each "
            "of its SMs: it stands for a number of SMs, not for a smaller product. Where the whole card is at its "
            "power limit and the partition is not (see the clocks below), a ratio of their times has both in it."
        )


def _samples(collection: Collection) -> Iterator[str]:
    rows = [n_samples(one) / max(1, len(one.recording.rows)) for one in collection.held]
    yield (
        f"Samples are as many as the race gives, not a fixed number: {min(rows):.1f} to {max(rows):.1f} a row in the "
        "mean of a recording. A template that the screen tells from the fastest has those of the screen alone, so the "
        "times of slow templates are rougher than those of fast ones ([measuring.md](measuring.md))."
    )


def _emulated(collection: Collection) -> Iterator[str]:
    emulated = [one for one in collection.held if one.header.support == "emulated"]
    if emulated:
        dtypes = ", ".join(sorted({one.header.dtype for one in emulated}))
        products = ", ".join(sorted({one.header.device.product for one in emulated}))
        specs = ", ".join(sorted({f"`{one.header.spec}`" for one in emulated}))
        yield f"{dtypes} is emulated on {products}, and only in {specs}; it is never averaged with native rows."


def _hot(collection: Collection) -> Iterator[str]:
    shares: dict[str, float] = {}
    for one in collection.firsts:
        least = HOT_IS_COLD.get(one.header.device.product)
        if one.header.protocol.name == "hot" and least is not None:
            large = moved_bytes(one.recording.table.problems, one.header.dtype) > least
            shares.setdefault(one.subject, float(np.mean(large)))
    if shares:
        listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        yield (
            "*hot* means the same operands, not that they are in the L2: above about 50 MB of A, B and D on an H200, "
            "hot launches read all of them from DRAM, too, and from about 100 MB on the times are nearly those of cold "
            f"ones. Share of the problems above 50 MB: {listed}."
        )


def _interval(collection: Collection) -> Iterator[str]:
    clocks = [one.header.clock for one in collection.held if one.header.clock is not None]
    if clocks:
        empty_us = [clock.empty_launch_ns / 1e3 for clock in clocks]
        yield (
            "An interval adds about 3 us on an H200 to what is in it, and nothing is subtracted: cold times of short "
            "kernels are nearer to each other than those of the bare kernels. With an empty kernel in between two "
            f"events are {min(empty_us):.1f} to {max(empty_us):.1f} us apart (`clock` in the header)."
        )


def _together(collection: Collection) -> Iterator[str]:
    pairs = [pair for pair in combinations(collection.held, 2) if at_the_same_time(*pair)]
    if pairs:
        listed = sorted({f"`{one.header.spec}` on `{one.header.device.slug}`" for pair in pairs for one in pair})
        own = sorted({_name(one) for pair in pairs for one in pair if len({_name(each) for each in pair}) == 1})
        repeats = f" Among these are a recording and its repeat: {', '.join(own)}." if own else ""
        yield (
            f"Two cards of one host measured at the same time, one recording each: {'; '.join(listed)}.{repeats} "
            "[measuring.md](measuring.md#two-cards) shows what that changes."
        )


def _name(one: Held) -> str:
    return f"{one.subject} {one.header.protocol.name} of `{one.header.device.slug}`"


def _drift(collection: Collection) -> Iterator[str]:
    moved = {
        f"{_name(one)}{', repeat' if one.is_repeat else ''}": max(drifts, key=abs)
        for one in collection.held
        if (drifts := [d for a in one.header.anchors for d in (a.drift_to_middle, a.drift) if d is not None])
    }
    far = [f"{name} {drift:+.1%}" for name, drift in moved.items() if abs(drift) > FAR]
    if far:
        yield (
            f"The anchors moved by more than {FAR:.0%} within a recording: {'; '.join(far)}. They are taken right "
            "after a batch, when a card that was at its power limit may still be slower; candidates take turns, so "
            "choices are not concerned, times of one problem against another's are."
        )


def at_the_same_time(one: Held, other: Held) -> bool:
    """Whether another card of the same host measured ``other`` while ``one`` was measured."""
    for mine in one.header.batches:
        for theirs in other.header.batches:
            apart = mine.host != theirs.host or mine.card == theirs.card
            first, second = sorted((mine, theirs), key=lambda batch: batch.started_at_s)
            if not apart and second.started_at_s < first.started_at_s + first.seconds:
                return True
    return False


def _adding(collection: Collection) -> Iterator[str]:
    """Of the kernels with an epilogue that CUTLASS does not have."""
    counts = {Status.OK: 0, Status.WRONG_RESULT: 0}
    for one in collection.held:
        adding = [i for i, c in enumerate(one.header.candidates) if c.template is not None and c.template.adding]
        rows = one.recording.rows
        statuses = rows["status"].filter(pc.is_in(rows["candidate"], pa.array(adding, pa.int16())))
        for status in counts:
            counts[status] += pc.sum(pc.equal(statuses.cast(pa.string()), status.value)).as_py() or 0
    if wrong := counts[Status.WRONG_RESULT]:
        yield (
            "Templates whose parts of K add themselves up in memory (their ids end in `a`, as in `_k2a`) are an "
            "experiment of this project: CUTLASS has no such epilogue. Of their rows that were launched "
            f"{wrong:,} of {sum(counts.values()):,} gave a wrong result, so they have no time."
        )


def _scope(collection: Collection) -> Iterator[str]:
    problems: dict[str, dict[str, int]] = {}
    for one in collection.firsts:
        sizes = problems.setdefault(one.header.space, {})
        subject = f"{one.header.spec} {one.header.dtype}"
        sizes[subject] = max(sizes.get(subject, 0), len(one.recording.table.problems))
    most = max(problems, key=lambda space: sum(problems[space].values()))
    less = [
        f"`{space}` on {', '.join(f'{count:,} of {subject}' for subject, count in sizes.items())}"
        for space, sizes in problems.items()
        if space != most
    ]
    if less:
        yield f"Most is recorded of the space `{most}`; fewer problems of others: {'; '.join(less)}."
    if not any(t.split_k > 1 or t.generator == "cutlass3" for one in collection.held for t in one.recording.templates):
        yield "No template has split-K or `wgmma`."
    yield (
        "s32 output without a fused epilogue, A row-major and B column-major, operands uniform over all bit patterns."
    )
