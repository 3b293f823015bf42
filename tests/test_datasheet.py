"""The datasheet: what it counts on small recordings, and that docs/datasets.md is of the committed ones."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
from published import CARD, LEAST_M, OTHER, PART, TWIN, VENDOR, held, rows_of
from published import WHOLE as DEVICE

from tilearena import dataset
from tilearena.datasheet.collection import Collection, collect, largest
from tilearena.datasheet.findings import (
    agreement,
    card_and_card,
    default_best,
    first_and_repeat,
    hot_and_cold,
    reached,
    whole_and_part,
    worth,
)
from tilearena.datasheet.limits import at_the_same_time, limits
from tilearena.datasheet.page import days, render, write_datasheet
from tilearena.datasheet.pictures import Picture, draw
from tilearena.datasheet.tables import ceilings, devices, failures, n_samples, sizes, trust
from tilearena.errors import RecordingError

WHOLE = DEVICE.slug


@pytest.fixture(scope="module")
def collection(shared_root):
    return collect(shared_root)


def test_collection_has_whole_cards_first_and_finds_what_is_alike(collection):
    assert [device.slug for device in collection.devices] == [WHOLE, TWIN.slug, PART.slug]
    assert [one.name for one in collection.of(WHOLE)] == [
        *("lowbit-full s8 cold", "lowbit-full s8 cold, repeat", "lowbit-full s8 hot"),
        *("lowbit-full b1 cold", "lowbit-full b1 hot", "lowbit-random s4 cold"),
    ]
    cold = held(collection, "lowbit-full s8 cold")
    assert collection.like(cold, protocol="hot") is held(collection, "lowbit-full s8 hot")
    assert collection.like(cold, repeat=True) is held(collection, "lowbit-full s8 cold, repeat")
    assert collection.like(cold, spec="networks") is None
    assert largest(collection.held, "s8", "cold") is cold
    assert largest(collection.held, "s4", "hot") is None


def test_fingerprint_of_all_changes_with_any_of_them(published_root, collection):
    path = published_root / "baselines" / "recordings" / held(collection, "lowbit-full b1 hot").path
    recording = dataset.read(path)
    dataset.write(path, recording.header.model_copy(update={"noise_floor": 0.25}), recording.rows)
    assert collect(published_root).fingerprint != collection.fingerprint
    assert len(collection.fingerprint) == 16


def test_sizes_and_state_are_those_of_the_files(collection):
    one = held(collection, "lowbit-full s8 cold")
    # 9 templates and cuBLASLt, 3 samples each, but for cuBLASLt below 17 rows
    few = int((one.recording.table.problems[:, 0] < LEAST_M).sum())
    assert few > 0
    assert n_samples(one) == 30 * 10 * 3 - 3 * few
    (size,) = (row for row in rows_of(sizes(collection.of(WHOLE))) if row[0] == one.name)
    assert size[1:4] == ["30", "300", str(900 - 3 * few)]
    assert size[5:7] == ["3.5", "2026-01-02"]
    (state,) = (row for row in rows_of(trust(collection.of(WHOLE))) if row[0] == one.name)
    assert state == [
        *(one.name, "aaaa", "0.50%", "-", "+2.00%", "1500 to 1980", "-", "345 W", "-", "1 of 2", "1"),
    ]
    assert [row[2] for row in rows_of(devices(collection))] == ["all 132", "all 132", "72 of 132"]


def test_failures_are_counted_by_reason(collection):
    below, total = {}, {}
    for one in collection.held:
        m = one.recording.table.problems[:, 0]
        below.setdefault(one.header.dtype, []).extend(m[m < LEAST_M].tolist())
        total[one.header.dtype] = total.get(one.header.dtype, 0) + len(m)
    assert rows_of(failures(collection)) == [
        [
            *(dtype, "paper9", "cublaslt", "launch_failed", f"fewer than {LEAST_M} rows"),
            *(str(len(below[dtype])), str(total[dtype]), f"{min(below[dtype])} to {max(below[dtype])}"),
        ]
        for dtype in sorted(below)
        if below[dtype]
    ]
    assert len(below["s8"]) > 10


def test_worth_is_the_geometric_mean_over_the_default(collection):
    one = held(collection, "lowbit-full s8 cold")
    times = one.recording.table.time_ns
    ratios = times[:, one.header.default] / times.min(axis=1)
    (row,) = (row for row in rows_of(worth(collection)) if row[:2] == [one.name, f"`{WHOLE}`"])
    assert row[2:4] == ["30", f"{math.prod(ratios) ** (1 / 30):.3f}x"]
    assert row[5] == f"{max(ratios):.2f}x"
    assert default_best(one) == sum(ratios == 1) / 30
    vendor = one.recording.column_ns(VENDOR)
    ran = np.isfinite(vendor)
    assert row[9] == f"{math.prod((vendor / times.min(axis=1))[ran]) ** (1 / ran.sum()):.3f}x"


def test_reached_speed_is_of_the_fastest(collection):
    one = held(collection, "lowbit-full b1 cold")
    best = zip(one.recording.table.problems.tolist(), one.recording.table.time_ns.min(axis=1), strict=True)
    rates = [(2 * m * n * k / t / 1e3, ((m + n) * k / 8 + 4 * m * n) / t) for (m, n, k), t in best]
    (row,) = (row for row in rows_of(reached(collection)) if row[:2] == [one.name, f"`{WHOLE}`"])
    tops, rate = (max(column) for column in zip(*rates, strict=True))
    # no peak is known of a device that does not exist
    assert row[2:] == [f"{tops:,.0f}", "-", f"{rate:,.0f}", "-"]


def test_what_is_compared_are_twins_in_all_but_one_thing(collection):
    def both(pairs):
        return [(name, one.name, one.header.device.slug, other.header.device.slug) for name, one, other in pairs]

    s8 = "lowbit-full s8 cold"
    assert both(whole_and_part(collection)) == [(s8, s8, WHOLE, PART.slug)]
    assert both(card_and_card(collection)) == [(s8, s8, WHOLE, TWIN.slug)]
    assert [one.name for _, one, _ in first_and_repeat(collection)] == [s8]
    assert [(one.name, other.name) for _, one, other in hot_and_cold(collection)] == [
        ("lowbit-full s8 hot", s8),
        ("lowbit-full b1 hot", "lowbit-full b1 cold"),
    ]
    row = rows_of(agreement(whole_and_part(collection)))[0]
    assert row[:4] == [s8, f"`{WHOLE}`", f"`{PART.slug}`", "20"]
    repeats = rows_of(agreement(first_and_repeat(collection)))
    assert repeats[0][1:4] == ["first (aaaa)", "repeat (aaaa)", "10"]
    assert rows_of(ceilings(collection))[0][:4] == [s8, f"`{WHOLE}`", "aaaa / aaaa", "10"]


def test_limits_name_what_was_measured_at_the_same_time(collection):
    cold, hot = held(collection, "lowbit-full s8 cold"), held(collection, "lowbit-full s8 hot")
    part = held(collection, "lowbit-full s8 cold", PART.slug)
    assert at_the_same_time(cold, part)
    assert not at_the_same_time(hot, part)  # it began later
    assert not at_the_same_time(cold, held(collection, "lowbit-full b1 cold"))  # of the same card
    text = " ".join(limits(collection))
    assert f"one recording each: `lowbit-full` on `{PART.slug}`; `lowbit-full` on `{WHOLE}`." in text
    assert "s4 is emulated on" in text
    assert "50 MB" not in text  # it is known of the H200 alone
    assert "a recording and its repeat" not in text


def test_limits_name_a_repeat_that_was_measured_with_its_recording_and_anchors_that_moved(collection):
    cold = held(collection, "lowbit-full s8 cold")
    repeat = held(collection, "lowbit-full s8 cold, repeat")
    beside = tuple(b.model_copy(update={"card": OTHER}) for b in cold.header.batches)
    moved = tuple(anchors.model_copy(update={"end_ns": anchors.start_ns}) for anchors in repeat.header.anchors)
    header = repeat.header.model_copy(update={"batches": beside, "anchors": moved})
    together = replace(repeat, recording=replace(repeat.recording, header=header))
    text = " ".join(limits(Collection((cold, together))))
    assert f"Among these are a recording and its repeat: lowbit-full s8 cold of `{WHOLE}`." in text
    assert f"moved by more than 1% within a recording: lowbit-full s8 cold of `{WHOLE}` +2.0%. They" in text


def test_pictures_are_linked_whatever_the_folder_is_called(collection):
    picture = Picture("winners", "text", None)
    assert "](a%20b%28c%29%FF/winners.png)" in render(collection, [picture], os.fsdecode(b"a b(c)\xff"))


def test_page_names_other_pages_where_it_cannot_link_them(collection):
    page = render(collection, [], "x")
    assert "[measuring.md](measuring.md)" in page
    assert f"`{CARD}`" in page
    alone = render(collection, [], "x", linked=False)
    assert "](measuring.md" not in alone
    assert "`docs/measuring.md` of tilearena" in alone
    assert days(collection) == ("2026-01-02", "2026-01-02")
    assert all(len(line) <= 120 or line.startswith(("|", "#", "!", "<")) for line in page.splitlines())


def test_its_lines_of_code_read_a_recording(collection, shared_root, monkeypatch):
    code = [line[4:] for line in render(collection, [], "x").splitlines() if line.startswith("    ")]
    monkeypatch.chdir(shared_root)
    found = {}
    exec("\n".join(code), found)
    one = collection.held[0].recording
    assert found["names"] == [t.label for t in one.templates] + [
        c.id for c in one.header.candidates[len(one.templates) :]
    ]
    assert found["time_ns"] == one.column_ns(found["row"]["candidate"])[0]


def test_datasheet_is_refused_where_it_has_no_name_or_nothing_to_say(tmp_path):
    (tmp_path / "baselines" / "recordings").mkdir(parents=True)
    with pytest.raises(RecordingError, match=r"ends in \.md"):
        write_datasheet(tmp_path, tmp_path / "datasets")
    with pytest.raises(RecordingError, match="nothing measured is recorded there"):
        write_datasheet(tmp_path, tmp_path / "datasets.md")


def test_committed_datasheet_is_of_the_committed_recordings(checkout):
    """If this fails: ``tilearena recordings datasheet docs/datasets.md``."""
    page, folder = checkout / "docs" / "datasets.md", checkout / "docs" / "datasets"
    collection = collect(checkout)
    pictures = draw(collection)
    assert page.read_text(encoding="utf-8") == render(collection, pictures, folder.name)
    assert {path.name for path in folder.iterdir()} == {f"{picture.name}.png" for picture in pictures}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 700_000
