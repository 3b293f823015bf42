"""The README's tables are what the committed submissions say; ``python tests/test_readme.py`` writes them anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from scipy.stats import gmean

from tilearena import dataset
from tilearena.leaderboard import table
from tilearena.leaderboard.table import Row
from tilearena.root import find_path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
OPEN, CLOSE = (
    "<!-- results: tests/test_readme.py compares these tables with the committed submissions -->",
    "<!-- /results -->",
)
#: Device, spec, split, space and what was trained on: of one table.
Part = tuple[str, str, str, str, str]
RANDOM: Part = ("nvidia-h200", "lowbit-random", "random", "paper9", "lowbit-random")
LAYERS: Part = ("nvidia-h200", "networks", "models", "paper9", "lowbit-random")
WIDE: Part = ("nvidia-h200", "lowbit-random", "random", "h200-all", "lowbit-random")
WIDE_LAYERS: Part = ("nvidia-h200", "networks", "models", "h200-all", "lowbit-random")
#: Dtype and protocol of one column.
Column = tuple[str, str]
PROTOCOLS = ("cold", "hot")
PREDICTORS = ("mlp-features", "gbdt", "picker", "mlp", "heuristic", "nearest", "constant", "default")


def render() -> str:
    """The caption and the tables."""
    nine, many = (
        dataset.read(find_path(ROOT, "nvidia-h200", "lowbit-random", space, "s8", "cold"))
        for space in ("paper9", "h200-all")
    )
    columns = [(dtype, protocol) for dtype in ("s8", "b1", "s4") for protocol in PROTOCOLS]
    native = [column for column in columns if column[0] != "s4"]
    wide = [(part, ("s8", protocol)) for part in (WIDE, WIDE_LAYERS) for protocol in PROTOCOLS]
    nine_date, many_date = (one.header.started_at[:10] for one in (nine, many))
    rows = {(_part(row), *_of(row)): row for row in table.load(ROOT, ROOT).rows}
    return "\n".join(
        [
            f"{nine.header.device.product}, driver {nine.header.device.driver}. Each cell: **top2**, regret, speedup",
            "over the default template (over cuBLASLt). The **nine templates** of the published game, `paper9`,",
            f"{nine_date}, on {len(nine.table.problems):,} problems per dtype of `lowbit-random`, 5-fold:",
            "",
            *_table(rows, [(RANDOM, column) for column in columns]),
            "",
            "The same on layers of real networks (`networks`), by what was learned from `lowbit-random`, no shape in",
            "both:",
            "",
            *_table(rows, [(LAYERS, column) for column in native]),
            "",
            f"**{len(many.table.task.templates)} templates**, `h200-all`, {many_date}: tiles of all sizes,",
            "split-K, and Hopper's `wgmma` in clusters and by stream-K, on",
            f"{len(many.table.problems):,} problems of `lowbit-random`, 5-fold, and on `networks` by what was learned",
            "from these:",
            "",
            *_table(rows, wide),
        ]
    )


def _part(row: Row) -> Part:
    return row["device"], row["spec"], row["split"], row["space"], row["train_spec"]


def _of(row: Row) -> tuple[str, str, str]:
    return row["dtype"], row["protocol"], row["predictor"]


def _table(rows: Mapping[tuple[object, ...], Row], columns: Sequence[tuple[Part, Column]]) -> list[str]:
    oracle = [rows[(part, *column, "oracle")] for part, column in columns]
    return [
        "| | " + " | ".join(_title(part, column, columns) for part, column in columns) + " |",
        "|---|" + "---|" * len(columns),
        *(
            f"| {name} | {' | '.join(cell(rows[(part, *column, name)]) for part, column in columns)} |"
            for name in PREDICTORS
        ),
        "| *best* | " + " | ".join(f"100 %, 0 %, {speedup(row)}" for row in oracle) + " |",
        "| *ceiling* | " + " | ".join(ceiling(row) for row in oracle) + " |",
    ]


def _title(part: Part, column: Column, columns: Sequence[tuple[Part, Column]]) -> str:
    spec = f"`{part[1]}` " if len({other for other, _ in columns}) > 1 else ""
    return f"{spec}{' '.join(column)}{' (emulated)' if column[0] == 's4' else ''}"


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


def test_tables_are_what_the_submissions_say() -> None:
    text = README.read_text()
    assert text[text.index(OPEN) + len(OPEN) : text.index(CLOSE)].strip() == render()


def test_figures_of_the_opening_are_those_of_the_recording() -> None:
    times = dataset.read(find_path(ROOT, "nvidia-h200", "lowbit-random", "paper9", "s8", "cold")).table
    default, best_ns = times.time_ns[:, times.task.default], times.time_ns.min(axis=1)
    wins, best = default == best_ns, gmean(default / best_ns)
    wide = dataset.read(find_path(ROOT, "nvidia-h200", "lowbit-random", "h200-all", "s8", "cold")).table
    of_all = gmean(wide.time_ns[:, wide.task.default] / wide.time_ns.min(axis=1))
    text = " ".join(README.read_text().split())
    assert f"wins {wins.mean():.1%} of the random int8 problems".replace("%", " %") in text
    assert f"the best of nine templates is {best:.2f}x faster in geometric mean" in text
    assert f"the best of {len(wide.task.templates)}, recorded on half of the problems, {of_all:.2f}x (" in text
    assert len(wide.problems) * 2 == len(times.problems)
    parts = {part: part[3] for part in (RANDOM, WIDE)}
    over_vendor = {
        parts[_part(row)]: row["speedup_vs_cublaslt_geomean"]
        for row in table.load(ROOT, ROOT).rows
        if _part(row) in parts and _of(row) == ("s8", "cold", "oracle")
    }
    assert f"({over_vendor['paper9']:.2f}x and {over_vendor['h200-all']:.2f}x as fast as cuBLASLt)" in text


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(f"{text[: text.index(OPEN) + len(OPEN)]}\n{render()}\n{text[text.index(CLOSE) :]}")
