"""Every statement of docs/query.md runs, and gives what the package computes from the same recordings."""

import contextlib
import re
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.compute as pc
import pytest
import scoring

from tilearena import dataset
from tilearena.figures import measured
from tilearena.root import find_path, recorded
from tilearena.rows import problems_of
from tilearena.score import score

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "query.md"
SECTIONS = {
    title: re.findall(r"^```sql\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
}


@pytest.fixture(scope="module")
def database():
    """With what the page sets up, in the folder that it names."""
    with contextlib.chdir(CHECKOUT), duckdb.connect() as connection:
        for statements in SECTIONS["Set up"]:
            connection.execute(statements)
        yield connection


@pytest.fixture(scope="module")
def recordings():
    """All of them, by path within the checkout."""
    return {path.relative_to(CHECKOUT).as_posix(): dataset.read(path) for path in recorded(CHECKOUT)}


def ask(database, title):
    """The rows of the one query of a section."""
    (query,) = SECTIONS[title]
    return database.execute(query).fetchall()


def is_of(path, recording, *, repeat=True):
    """Device, workload, space, dtype, protocol, and whether it is a repeat."""
    h = recording.header
    key = (h.device.slug, h.spec, h.space, h.dtype, h.protocol.name)
    return (*key, ".repeat." in path) if repeat else key


def test_page_has_a_query_in_every_section_and_no_other_is_tested():
    asked = set(re.findall(r'ask\(database, "(.*?)"\)', Path(__file__).read_text()))
    assert {title for title in SECTIONS if title != "Set up"} == asked


def test_time_of_every_row_is_the_packages(database, recordings):
    query = "SELECT filename, m, n, k, candidate, time_ns FROM times"
    found = {tuple(row[:5]): row[5] for row in database.execute(query).fetchall()}
    total = 0
    for path, recording in recordings.items():
        shapes, problem = problems_of(recording.rows)
        candidates = recording.rows["candidate"].to_numpy()
        columns = [recording.column_ns(c) for c in range(len(recording.header.candidates))]
        expected = np.stack(columns, axis=1)[problem, candidates].tolist()
        keys = np.column_stack([shapes[problem], candidates]).tolist()
        theirs = [found[path, *key] for key in keys]
        assert [np.inf if ns is None else ns for ns in theirs] == expected
        total += len(keys)
    assert total == len(found)


def test_what_is_recorded(database, recordings):
    expected = sorted((*is_of(p, r), len(r.rows), r.header.noise_floor) for p, r in recordings.items())
    assert ask(database, "What is recorded") == expected


def test_number_of_cards_and_their_temperature(database, recordings):
    for path, n_cards, hottest_c in ask(database, "On how many cards, and how hot they were"):
        batches = recordings[path].header.batches
        assert n_cards == len({batch.card for batch in batches})
        assert hottest_c == max(batch.telemetry.temperature_c.max for batch in batches)


def test_best_templates(database):
    table = dataset.read(find_path(CHECKOUT, "nvidia-h200", "lowbit-random", "paper9", "s8", "cold")).table
    best_ns = table.time_ns.min(axis=1)
    expected = [
        (*table.problems[p].tolist(), table.task.templates[c].label, best_ns[p])
        for p in np.lexsort(table.problems.T[::-1])
        for c in np.flatnonzero(table.time_ns[p] == best_ns[p])
    ]
    assert len(expected) > len(table.problems)  # some are tied
    assert ask(database, "The best template of each problem") == expected


def test_worth_of_the_best_template(database, recordings):
    found = ask(database, "What the best template is worth over the default")
    assert [row[0] for row in found] == sorted(recordings)
    for path, n_problems, oracle_speedup, default_is_best in found:
        table = recordings[path].table
        default = np.full((len(table.problems), 1), table.task.default)
        judged = score(table, default, key=scoring.KEY, intervals=False)
        assert n_problems == judged.n_problems - judged.n_unmeasured
        assert oracle_speedup == pytest.approx(judged.figures["oracle_speedup_geomean"].value, rel=1e-12)
        assert default_is_best == pytest.approx(judged.figures["top1"].value, rel=1e-12)


def test_winners(database, recordings):
    expected = {}
    for path, recording in recordings.items():
        if ".repeat." not in path:
            table = recording.table.take(measured(recording.table))
            wins = Counter(table.time_ns.argmin(axis=1).tolist())
            key = is_of(path, recording, repeat=False)
            expected |= {(*key, table.task.templates[c].label): n / len(table.problems) for c, n in wins.items()}
    found = ask(database, "How often each template wins")
    assert {row[:6]: row[6] for row in found} == pytest.approx(expected, rel=1e-12)
    assert len(found) == len(expected)


def test_failures_by_reason(database, recordings):
    expected = Counter()
    for path, recording in recordings.items():
        ids = [candidate.id for candidate in recording.header.candidates]
        for row in recording.rows.filter(pc.field("status") != "ok").to_pylist():
            expected[*is_of(path, recording), ids[row["candidate"]], row["status"], row["reason"]] += 1
    assert expected
    assert ask(database, "Failures by reason") == sorted((*key, count) for key, count in expected.items())


def test_two_devices(database, recordings):
    expected = []
    for dtype in ("b1", "s8"):
        for protocol in ("cold", "hot"):
            paths = [
                find_path(CHECKOUT, device, "lowbit-full", "paper9", dtype, protocol)
                for device in ("nvidia-h200", "nvidia-h200-sm72")
            ]
            whole, part = (recordings[path.relative_to(CHECKOUT).as_posix()].table for path in paths)
            row_of = {tuple(problem): row for row, problem in enumerate(whole.problems.tolist())}
            whole = whole.take(np.array([row_of[tuple(problem)] for problem in part.problems.tolist()]))
            choice, best = whole.time_ns.argmin(axis=1), part.time_ns.argmin(axis=1)
            every = np.arange(len(best))
            regret = part.time_ns[every, choice] / part.time_ns[every, best] - 1
            slower = np.log(part.time_ns.min(axis=1) / whole.time_ns.min(axis=1))
            expected.append((len(best), np.exp(slower.mean()), (choice == best).mean(), regret.mean()))
    found = ask(database, "Two devices")
    assert [row[:2] for row in found] == [("b1", "cold"), ("b1", "hot"), ("s8", "cold"), ("s8", "hot")]
    assert [row[2:] for row in found] == [pytest.approx(row, rel=1e-9) for row in expected]
