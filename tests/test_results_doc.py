"""docs/results.md has the figures of the committed submissions; ``python tests/test_results_doc.py`` writes them anew.

A block of the page begins with ``<!-- results key=value ... -->``, says so what it is about, and ends with
``<!-- /results -->``.
"""

import re
from functools import cache
from itertools import groupby
from pathlib import Path

from tilearena.datasheet.tables import table as markdown
from tilearena.leaderboard import table
from tilearena.leaderboard.table import Row

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
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


def line(row: Row) -> tuple[str, ...]:
    """The figures of one predictor."""
    between = f"{percent(row['regret_mean'], 2)} ({100 * row['regret_mean_lo']:.2f}..{100 * row['regret_mean_hi']:.2f})"
    shares = (percent(row["top2"]), percent(row["top2_tie"]), between, percent(row["regret_p99"]))
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


def test_tables_are_what_the_submissions_say() -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 3
    for _, about, shown, _ in blocks:
        assert shown.strip() == render(about).strip()
        assert shown.count("*ceiling*") >= 2, about


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda found: f"{found[1]}\n{render(found[2])}{found[4]}", PAGE.read_text()))
