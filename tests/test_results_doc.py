"""docs/results.md has the figures of the committed submissions; ``python tests/test_results_doc.py`` writes them anew.

A block of the page begins with ``<!-- results key=value ... -->``, says so what it is about, and ends with
``<!-- /results -->``.
"""

import json
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tilearena import dataset
from tilearena.datasheet.tables import table as markdown
from tilearena.final import is_final
from tilearena.leaderboard import table
from tilearena.leaderboard.table import Row
from tilearena.plugin_code import code_fingerprint
from tilearena.root import find_path
from tilearena.splits import LARGE_MACS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
LEARNING = PAGE.parent / "results" / "learning.json"
CURVES = re.compile(r"(<!-- learning -->\n)(.*?)(<!-- /learning -->)", re.DOTALL)
BLOCK = re.compile(r"(<!-- results ([^>]*?) -->\n)(.*?)(<!-- /results -->)", re.DOTALL)
HEAD = ("", "top2", "or tied", "regret (95 %)", "p99", "at 4", "gap closed", "slower", "speedup", "over cuBLASLt")
ORDER = {"s8": 0, "b1": 1, "s4": 2}


@cache
def rows() -> list[Row]:
    """All results, those of one recording beside each other, in the order of the page."""
    by = ("device", "dtype", "protocol")
    found = [row for row in table.load(ROOT, ROOT).rows if row["predictor"] != "oracle" and row["status"] == "ok"]
    return sorted(found, key=lambda row: (*(ORDER.get(row[k], row[k]) for k in by), row["regret_mean"]))


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def regret(row: Row) -> str:
    """The mean and its interval."""
    return f"{percent(row['regret_mean'], 2)} ({100 * row['regret_mean_lo']:.2f}..{100 * row['regret_mean_hi']:.2f})"


def line(row: Row) -> tuple[str, ...]:
    """The figures of one predictor."""
    shares = (percent(row["top2"]), percent(row["top2_tie"]), regret(row), percent(row["regret_p99"]))
    others = (percent(row["regret_at_4"], 2), percent(row["gap_closed"]), percent(row["slowdown_share"]))
    speedups = (ratio(row["speedup_geomean"]), ratio(row["speedup_vs_cublaslt_geomean"]))
    return (row["predictor"], *shares, *others, *speedups)


def section(found: list[Row]) -> list[str]:
    """The table of one recording: its predictors, what choosing by its repeat reaches, and the best there is."""
    first = found[0]
    ceiling = (percent(first["ceiling_top2"]), "", percent(first["ceiling_regret_mean"], 2))
    best = (ratio(first["oracle_speedup_geomean"]), ratio(first["oracle_speedup_vs_cublaslt_geomean"]))
    title = f"**{first['device']}, {first['dtype']} {first['protocol']}** ({first['n_problems']} problems)"
    lines = [*map(line, found), ("*ceiling*", *ceiling, *[""] * 6), ("*best*", *[""] * 7, *best)]
    return [title, "", *markdown(HEAD, lines), ""]


def render(about: str) -> str:
    """The tables of one block."""
    wanted = dict(pair.split("=") for pair in about.split())
    found = [row for row in rows() if all(row[key] == value for key, value in wanted.items())]
    groups = groupby(found, key=lambda row: (row["device"], row["dtype"], row["protocol"]))
    return "\n".join(text for _, group in groups for text in section(list(group)))


def curve(found: dict[str, Any]) -> list[str]:
    """Regret by number of problems, and the problems that lose the most after training on all of them."""
    names = " ".join(found[key] for key in ("spec", "space", "dtype", "protocol", "split"))
    points = [
        (p["n_problems"], regret(p), percent(p["regret_p99"]), percent(p["regret_at_4"], 2)) for p in found["points"]
    ]
    ceiling = found["points"][-1]["ceiling_regret_mean"]
    worst = [
        (" x ".join(map(str, w["problem"])), percent(w["regret"]), w["pick"], w["best"]) for w in found["worst"][:8]
    ]
    share = f"{len(found['worst'])} problems have {percent(sum(w['share'] for w in found['worst']))} of all regret"
    return [
        f"**{names}**, ceiling {percent(ceiling, 2)}; {share}",
        "",
        *markdown(("problems", "regret (95 %)", "p99", "at 4"), points),
        "",
        *markdown(("worst", "regret", "picked", "best"), worst),
        "",
    ]


def curves() -> str:
    """All that `learning_curve.py` has written."""
    return "\n".join(text for found in json.loads(LEARNING.read_text())["curves"] for text in curve(found))


def test_learning_curves_are_those_of_the_committed_recordings_and_code() -> None:
    (_, shown, _) = CURVES.findall(PAGE.read_text())[0]
    assert shown.strip() == curves().strip()
    written = json.loads(LEARNING.read_text())
    assert written["code_fingerprint"] == code_fingerprint(written["predictor"])
    for found in written["curves"]:
        path = find_path(ROOT, "nvidia-h200", found["spec"], found["space"], found["dtype"], found["protocol"])
        assert found["fingerprint"] == dataset.read_header(path)[0].fingerprint
        regrets = [point["regret_mean"] for point in found["points"]]
        assert regrets[-1] < regrets[0] / 2  # more problems help


def test_problems_that_lose_the_most_beyond_the_trained_sizes_write_more_than_the_l2_holds() -> None:
    found = next(one for one in json.loads(LEARNING.read_text())["curves"] if one["split"] == "extrapolate")
    table = dataset.read(
        find_path(ROOT, "nvidia-h200", *(found[k] for k in ("spec", "space", "dtype", "protocol")))
    ).table
    problems, l2_bytes = table.problems[~is_final(table.problems)], table.task.device.l2_bytes
    large = problems.prod(axis=1) >= LARGE_MACS
    fits = 4 * problems[:, 0] * problems[:, 1] <= l2_bytes
    assert fits[~large].all()
    worst = [4 * m * n > l2_bytes for m, n, _ in (one["problem"] for one in found["worst"])]
    text = " ".join(PAGE.read_text().split())
    assert f"that of {sum(worst)} of the {len(worst)} problems that lose the most does not" in text
    regrets = {point["n_problems"]: point["regret_mean"] for point in found["points"]}
    assert "they hardly do from 800 problems on" in text
    assert max(regrets.values()) > 4 * regrets[800]
    assert all(0.8 < regret / regrets[800] < 1.1 for n_problems, regret in regrets.items() if n_problems > 800)
    assert f"(of all that are tested, of {1 - fits[large].mean():.0%})".replace("%", " %") in text


def test_tables_are_what_the_submissions_say() -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 3
    for _, about, shown, _ in blocks:
        assert shown.strip() == render(about).strip()
        assert shown.count("*ceiling*") >= 2, about


if __name__ == "__main__":
    text = BLOCK.sub(lambda found: f"{found[1]}\n{render(found[2])}{found[4]}", PAGE.read_text())
    PAGE.write_text(CURVES.sub(lambda found: f"{found[1]}\n{curves()}{found[3]}", text))
