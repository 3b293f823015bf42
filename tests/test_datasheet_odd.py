"""The datasheet of recordings that are not as most: without times, without anything in common, of another space."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from published import LEAST_M, held, rows_of

from tilearena import dataset
from tilearena.datasheet.collection import Collection, collect
from tilearena.datasheet.findings import first_and_repeat, hot_and_cold, worth
from tilearena.datasheet.limits import limits
from tilearena.datasheet.page import render
from tilearena.datasheet.pictures import draw
from tilearena.datasheet.tables import ceilings, failures, spaces


@pytest.fixture(scope="module")
def collection(shared_root):
    return collect(shared_root)


def changed(one, change):
    """``one`` with ``change`` applied to each of its rows that it takes."""
    rows = one.recording.rows.to_pylist()
    rows = [change(row) for row in rows if change(row) is not None]
    return replace(one, recording=replace(one.recording, rows=pa.Table.from_pylist(rows, schema=dataset.COLUMNS)))


def failed(row):
    return row | {"status": "launch_failed", "elapsed_ns": [], "launches": 0, "reason": "no | driver\n# at all"}


@pytest.mark.parametrize("only_default", [False, True])
def test_recordings_without_times_are_described_without_figures(collection, only_default):
    names = ("lowbit-full s8 cold", "lowbit-full s8 cold, repeat", "lowbit-full s8 hot")
    default = collection.held[0].header.default
    dead = Collection(
        tuple(
            changed(
                held(collection, name), lambda row: row if only_default and row["candidate"] != default else failed(row)
            )
            for name in names
        )
    )
    drawn = draw(dead)
    lines = render(dead, drawn, "x").splitlines()
    assert [row[2:7] for row in rows_of(worth(dead))] == [["0", "-", "-", "-", "-"]] * 2
    assert rows_of(worth(dead))[0][9] == ("-" if not only_default else rows_of(worth(dead))[0][9])
    assert (len(drawn) > 0, any("No two recordings" in line for line in lines)) == (only_default, True)
    assert any("no \\| driver # at all" in line for line in lines)


def test_recordings_without_a_common_problem_are_not_compared(collection):
    cold, hot = held(collection, "lowbit-full s8 cold"), held(collection, "lowbit-full s8 hot")
    middle = int(np.median(cold.recording.table.problems[:, 0]))
    apart = Collection(
        (
            changed(cold, lambda row: row if row["m"] <= middle else None),
            changed(hot, lambda row: row if row["m"] > middle else None),
        )
    )
    assert list(hot_and_cold(apart)) == []
    assert [picture.name for picture in draw(apart)] == ["best-template-s8", "winners", "speedup", "roofline"]


def test_recordings_of_other_templates_are_not_compared(collection):
    cold, repeat = held(collection, "lowbit-full s8 cold"), held(collection, "lowbit-full s8 cold, repeat")
    candidates = tuple(c for i, c in enumerate(repeat.header.candidates) if i != 8)
    fewer = changed(
        repeat, lambda row: None if row["candidate"] == 8 else row | {"candidate": min(row["candidate"], 8)}
    )
    header = repeat.header.model_copy(update={"candidates": candidates})
    other = replace(fewer, recording=replace(fewer.recording, header=header))
    assert list(first_and_repeat(Collection((cold, repeat)))) != []
    assert list(first_and_repeat(Collection((cold, other)))) == []
    assert ceilings(Collection((cold, other))) == ["No recording has a repeat."]


def wide(one, **changes):
    """``one`` as of a space ``wide`` whose last two templates have split-K, the last one by sums in memory."""
    candidates = list(one.header.candidates)
    for i, adding in ((7, False), (8, True)):
        template = candidates[i].template.model_copy(update={"split_k": 2, "adding": adding})
        candidates[i] = candidates[i].model_copy(update={"id": template.id, "template": template})
    header = one.header.model_copy(update={"space": "wide", "candidates": tuple(candidates)})

    def failing(row):
        wrong = {"elapsed_ns": [], "launches": 0, "status": "wrong_result", "reason": f"row {row['m']} is wrong"}
        deep = wrong | {"status": "infeasible", "reason": f"K has {row['k'] // 64} steps"}
        return row | {7: deep if row["m"] < LEAST_M else {}, 8: wrong}.get(row["candidate"], {})

    changed_ = changed(one, failing)
    return replace(changed_, recording=replace(changed_.recording, header=header))


def test_another_space_is_named_and_its_templates_fail_together(collection):
    plain = held(collection, "lowbit-full s8 cold")
    one = wide(plain)
    both = Collection((plain, one))
    assert (plain.name, one.name) == ("lowbit-full s8 cold", "lowbit-full wide s8 cold")
    m = plain.recording.table.problems[:, 0]
    few = m[m < LEAST_M]
    of_wide = [row[1:] for row in rows_of(failures(both)) if row[1] == "wide"]
    assert of_wide[1:] == [
        [
            "wide",
            "templates",
            "infeasible",
            "K has ... steps",
            str(len(few)),
            str(8 * 30),
            f"{few.min()} to {few.max()}",
        ],
        [
            "wide",
            "templates that add in memory",
            *("wrong_result", "row ... is wrong", "30", "30", f"{m.min()} to {m.max()}"),
        ],
    ]
    assert rows_of(spaces(both)) == [["`paper9`", "s8", *"99001"], ["`wide`", "s8", *"99021"]]
    text = " ".join(limits(both))
    assert "launched 30 of 30 gave a wrong result" in text
    assert "Most is recorded of the space `paper9`; fewer problems of others: `wide` on 30 of lowbit-full s8." in text
    assert "No template has split-K" not in text
    alone = " ".join(limits(Collection((plain,))))
    assert "No template has split-K or `wgmma`." in alone
    assert "gave a wrong result" not in alone
    assert "of others" not in alone
