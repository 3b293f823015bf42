"""The README's result table is what the committed submissions say; ``python tests/test_readme.py`` writes it anew."""

from pathlib import Path

from scipy.stats import gmean

from tilearena import dataset
from tilearena.leaderboard import table
from tilearena.leaderboard.table import Row
from tilearena.root import find_path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
OPEN, CLOSE = (
    "<!-- results: tests/test_readme.py compares this table with the committed submissions -->",
    "<!-- /results -->",
)
COLUMNS = [(dtype, protocol) for dtype in ("s8", "b1", "s4") for protocol in ("cold", "hot")]
PREDICTORS = ("mlp-features", "gbdt", "picker", "mlp", "heuristic", "nearest", "constant", "default")


def render() -> str:
    """The caption and the table."""
    header = dataset.read(find_path(ROOT, "nvidia-h200", "lowbit-random", "paper9", "s8", "cold")).header
    board = table.load(ROOT, ROOT).rows
    rows = {
        (row["dtype"], row["protocol"], row["predictor"]): row
        for row in board
        if (row["device"], row["spec"], row["split"], row["space"])
        == ("nvidia-h200", "lowbit-random", "random", "paper9")
    }
    oracle = [rows[dtype, protocol, "oracle"] for dtype, protocol in COLUMNS]
    lines = [
        f"{header.device.product}, {header.started_at[:10]}, driver {header.device.driver}; `lowbit-random`, 2,000",
        "problems per dtype, 5-fold. Each cell: **top2**, regret, speedup over the default template (over cuBLASLt).",
        "",
        "| | " + " | ".join(f"{d} {p}{' (emulated)' if d == 's4' else ''}" for d, p in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
        *(f"| {name} | {' | '.join(cell(rows[d, p, name]) for d, p in COLUMNS)} |" for name in PREDICTORS),
        "| *best of nine* | " + " | ".join(f"100 %, 0 %, {speedup(row)}" for row in oracle) + " |",
        "| *ceiling* | " + " | ".join(ceiling(row) for row in oracle) + " |",
    ]
    models = {
        (row["dtype"], row["protocol"], row["predictor"]): row
        for row in board
        if (row["device"], row["spec"], row["split"], row["space"]) == ("nvidia-h200", "networks", "models", "paper9")
        and row["train_spec"] == "lowbit-random"
    }
    columns = [column for column in COLUMNS if (*column, "gbdt") in models]
    lines += [
        "",
        "Layers of real networks (`networks`), by what was learned from `lowbit-random`, no shape in both:",
        "",
        "| | " + " | ".join(f"{d} {p}" for d, p in columns) + " |",
        "|---|" + "---|" * len(columns),
        *(f"| {name} | {' | '.join(cell(models[d, p, name]) for d, p in columns)} |" for name in PREDICTORS),
    ]
    return "\n".join(lines)


def cell(row: Row) -> str:
    """top2, mean regret, speedups."""
    return f"**{row['top2']:.1%}**, {row['regret_mean']:.2%}, {speedup(row)}"


def speedup(row: Row) -> str:
    """Geometric means over the default and, where it ran, over cuBLASLt."""
    vendor = row["speedup_vs_cublaslt_geomean"]
    return f"{row['speedup_geomean']:.3f}x" + ("" if vendor is None else f" ({vendor:.3f}x)")


def ceiling(row: Row) -> str:
    """What choosing by a second recording achieves."""
    if row["ceiling_top2"] is None:
        return "no repeat"
    return f"{row['ceiling_top2']:.1%}, {row['ceiling_regret_mean']:.2%}"


def test_cell_has_the_vendor_in_brackets_where_it_ran() -> None:
    row = {"top2": 0.9512, "regret_mean": 0.0123, "speedup_geomean": 1.5, "speedup_vs_cublaslt_geomean": 0.875}
    assert cell(row) == "**95.1%**, 1.23%, 1.500x (0.875x)"
    assert cell(row | {"speedup_vs_cublaslt_geomean": None}) == "**95.1%**, 1.23%, 1.500x"


def test_table_is_what_the_submissions_say() -> None:
    text = README.read_text()
    assert text[text.index(OPEN) + len(OPEN) : text.index(CLOSE)].strip() == render()


def test_figures_of_the_opening_are_those_of_the_recording() -> None:
    times = dataset.read(find_path(ROOT, "nvidia-h200", "lowbit-random", "paper9", "s8", "cold")).table
    default, best_ns = times.time_ns[:, times.task.default], times.time_ns.min(axis=1)
    wins, best = default == best_ns, gmean(default / best_ns)
    text = " ".join(README.read_text().split())
    assert f"wins {wins.mean():.1%} of the random int8 problems".replace("%", " %") in text
    assert f"the best of nine templates is {best:.2f}x faster in geometric mean" in text


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(f"{text[: text.index(OPEN) + len(OPEN)]}\n{render()}\n{text[text.index(CLOSE) :]}")
