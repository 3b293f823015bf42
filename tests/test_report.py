"""What the printed tables show of a score."""

import io
import re

import pytest
from rich.console import Console

from tilearena.bench_live import LiveResult
from tilearena.evaluate import Subject, evaluate
from tilearena.report import live_table, score_table


@pytest.fixture
def printed(arena):
    """Prints the scores of the oracle and the constant on one dtype, 140 columns wide: the lines."""

    def _printed(dtype):
        subject = Subject("lowbit-random", "paper9", dtype, "cold", "synthetic-device", "random")
        scores = [s.score for s in evaluate(arena.root, subject, ["oracle", "constant"])]
        output = io.StringIO()
        Console(file=output, width=140).print(score_table(scores, "title"))
        return scores, output.getvalue().splitlines()

    return _printed


def cells(lines, start):
    """The cells of the line whose first cell is ``start``."""
    rows = [[cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]] for line in lines]
    return next(row for row in rows if row and row[0].startswith(start))


def test_score_table_shows_the_vendor_beside_the_default(arena, printed):
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), vendor=0.9)
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True, vendor=0.9)
    (oracle, constant), lines = printed("s8")
    assert max(map(len, lines)) <= 140
    at = cells(lines, "predictor").index("vs cuBLASLt")
    assert cells(lines, "predictor")[at - 2 : at] == ["speedup", "of best"]
    best, plain = (s.figures["speedup_vs_cublaslt_geomean"].value for s in (oracle, constant))
    assert plain < best
    assert cells(lines, "lowbit-random")[at] == f"best {best:.3f}x"
    assert (cells(lines, "oracle")[at], cells(lines, "constant")[at]) == (f"{best:.3f}x", f"{plain:.3f}x")
    assert 0 < oracle.n_vendor < 40
    assert any(line.split("│")[at + 1].strip() == f"on {oracle.n_vendor}" for line in lines if "│" in line)


def test_score_table_without_a_vendor_has_dashes(printed):
    _, lines = printed("s8")
    at = cells(lines, "predictor").index("vs cuBLASLt")
    assert [cells(lines, name)[at] for name in ("lowbit-random", "oracle", "constant")] == ["", "-", "-"]


@pytest.mark.parametrize("live", [False, True])
def test_rows_come_by_top2_then_regret_within_their_section_and_refusals_last(printed, live):
    (_, constant), _ = printed("s8")

    def one(name, top2, regret, dtype="s8", **changes):
        key = constant.key.model_copy(update={"predictor": name, "dtype": dtype})
        values = {"top2": top2, "regret_mean": regret}
        figures = {name: constant.figures[name].model_copy(update={"value": value}) for name, value in values.items()}
        return constant.model_copy(update={"key": key, "figures": constant.figures | figures, **changes})

    scores = [
        one("refuses", 1.0, 0.0, status="failed", reason="'refuses' declined: no"),
        one("third", 0.8, 0.01),
        one("first", 0.95, 0.1),
        one("second", 0.9, 0.02),
        one("tied", 0.9, 0.03),
        one("other", 0.5, 0.0, "s4"),
        one("better", 0.6, 0.0, "s4"),
    ]
    results = [LiveResult("cross-validated", None, None, score, score, None, False) for score in scores]
    output = io.StringIO()
    table = live_table(results, "cuBLASLt", "title") if live else score_table(scores, "title")
    Console(file=output, width=140).print(table)
    names = re.findall(r"^│ (\w+) +│", output.getvalue(), flags=re.MULTILINE)
    assert names == ["first", "second", "tied", "third", "refuses", "better", "other"]


def test_predictor_that_declined_is_shown_with_its_reason_and_not_as_failed(printed):
    (oracle, constant), _ = printed("s8")
    key = oracle.key.model_copy(update={"predictor": "toy"})
    declined = oracle.model_copy(update={"key": key, "reason": "'toy' declined: no [s8] is served"})
    output = io.StringIO()
    Console(file=output, width=140).print(score_table([declined, declined, constant], "title"))
    lines = output.getvalue().splitlines()
    assert cells(lines, "toy")[1] == "declined"
    assert [line.strip() for line in lines].count("'toy' declined: no [s8] is served") == 1
    failed = declined.model_copy(update={"reason": "ValueError"})
    output = io.StringIO()
    Console(file=output, width=140).print(score_table([failed], "title"))
    assert cells(output.getvalue().splitlines(), "toy")[1] == "failed"
