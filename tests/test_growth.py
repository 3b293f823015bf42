"""Time grows in proportion to the rows, and what is read, filtered and scored is what the formula says.

The table of docs/growth.md is what docs/measuring/growth.json says; ``python tests/test_growth.py GROWTH.json`` writes
both from the figures of tests/bench_growth.py.
"""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import growing
import numpy as np
import pyarrow.parquet as pq
import pytest

from tilearena import dataset, row_fault, rows
from tilearena.dataset import Recording
from tilearena.score import score
from tilearena.table import Floats, Ints

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SOURCE = DOCS / "growth.md", DOCS / "measuring" / "growth.json"
OPENING = "<!-- growth: tests/test_growth.py compares this with what was measured -->\n"
CLOSING = "<!-- /growth -->"
#: What is promised: time of ten times the rows over that before, and memory with ten million rows. More than ten, since
#: a CPU's cache holds less of the largest than of the smallest.
MOST_TIMES, MOST_BYTES = 15, 4 << 30
SMALL, LARGE = 3_000, 9_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a recording of 30 thousand rows and one of 90 thousand."""
    folder = tmp_path_factory.mktemp("growth")
    for n_problems in (SMALL, LARGE):
        growing.append(folder / f"{n_problems}.parquet", n_problems)
    return folder


@pytest.fixture(scope="module")
def large(folder: Path) -> Recording:
    return dataset.read(folder / f"{LARGE}.parquet")


@pytest.fixture(scope="module")
def formula() -> tuple[Ints, Floats]:
    """Problems [P, 3] and times [P, 10] of the large one, inf where there is none."""
    parts = [growing.formula_ns(*cut, 0) for cut in growing.cuts(LARGE)]
    times = np.concatenate([np.where(missing, np.inf, time_ns) for time_ns, missing in parts])
    return growing.shapes(0, LARGE), times


def test_what_is_appended_in_batches_is_read_as_the_formula_has_it(large, formula):
    problems, time_ns = formula
    assert (large.table.problems == problems).all()
    assert (large.table.time_ns == time_ns[:, : growing.N_TEMPLATES]).all()
    assert (large.column_ns(growing.N_TEMPLATES) == time_ns[:, growing.DEFAULT]).all()
    assert len(large.rows) == LARGE * growing.N_CANDIDATES
    assert [b.n_problems for b in large.header.batches] == [stop - start for start, stop in growing.cuts(LARGE)]


def test_synthetic_recording_says_so(large):
    device = large.header.device
    assert (device.slug, device.product) == ("synthetic-growth", "Synthetic device (formula, not measured)")


def test_filter_finds_the_problems_and_failures_of_the_formula(large, formula):
    problems, time_ns = formula
    table, failed = growing.narrowed(large)
    few = problems[:, 0] <= 64
    assert 0 < few.sum() < LARGE
    assert (table.problems == problems[few]).all()
    assert (table.time_ns == time_ns[few, : growing.N_TEMPLATES]).all()
    where = np.argwhere(np.isinf(time_ns))
    assert len(where) == -(-LARGE // growing.FAILS_EVERY)
    found = [failed[name].to_pylist() for name in ("m", "n", "k", "candidate")]
    assert np.column_stack(found).tolist() == np.column_stack([problems[where[:, 0]], where[:, 1]]).tolist()


def test_score_is_the_formulas(large, formula):
    time_ns = formula[1][:, : growing.N_TEMPLATES]
    every = np.arange(LARGE)
    picks = np.stack([every % growing.N_TEMPLATES, (every + 1) % growing.N_TEMPLATES], axis=1)
    best, default = time_ns.min(axis=1), time_ns[:, growing.DEFAULT]
    picked = time_ns[every[:, None], picks]
    right = picked == best[:, None]
    slowest = np.where(np.isinf(time_ns), 0, time_ns).max(axis=1)
    first = np.where(np.isinf(picked[:, 0]), slowest, picked[:, 0])
    found = score(large.table, picks, key=growing.KEY, intervals=False)
    assert found.n_failed == np.isinf(picked[:, 0]).sum() > 0
    expected = {
        "top1": right[:, 0].mean(),
        "top2": right.any(axis=1).mean(),
        "regret_mean": (first / best - 1).mean(),
        "regret_p90": np.quantile(first / best - 1, 0.9),
        "speedup_geomean": np.exp(np.log(default / first).mean()),
        "oracle_speedup_geomean": np.exp(np.log(default / best).mean()),
        "slowdown_max": (first / default).max(),
    }
    assert {name: found.figures[name].value for name in expected} == pytest.approx(expected, rel=1e-12)


def test_pieces_in_which_rows_are_taken_do_not_matter(large, monkeypatch):
    few = large.rows.slice(0, 1000)
    screens, described = large.header.screens, large.header.model_dump(mode="json")
    whole = rows.content_fingerprint(described, few), rows.median_time_ns(few, screens).tolist()
    monkeypatch.setattr(rows, "PIECE", 7)
    assert (rows.content_fingerprint(described, few), rows.median_time_ns(few, screens).tolist()) == whole


def test_faulty_row_is_named_whatever_piece_it_is_in(large, monkeypatch):
    damaged = large.rows.slice(0, 1000).to_pylist()
    damaged[123]["n"] += 1
    table = large.rows.from_pylist(damaged, schema=large.rows.schema)
    monkeypatch.setattr(row_fault, "PIECE", 50)
    origins = [candidate.origin for candidate in large.header.candidates]
    fault = row_fault.row_fault(table, "s8", large.header.protocol, origins)
    assert fault == "row 123 has an m, n or k that no problem has"


def test_ten_million_rows_may_be_read(folder):
    path = folder / f"{LARGE}.parquet"
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    n_values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    assert n_values / metadata.num_rows * 10_000_000 < dataset.MAX_VALUES


@pytest.mark.parametrize("step", ["append", "load", "filter", "score"])
def test_time_of_three_times_the_rows_is_about_three_times_as_long(folder, tmp_path, step):
    def least_s(n_problems: int) -> float:
        path = (tmp_path if step == "append" else folder) / f"{n_problems}.parquet"
        return min(growing.step(step, path, n_problems) for _ in range(1 if step == "append" else 3))

    assert least_s(LARGE) < 6 * least_s(SMALL)


def reduced(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of the figures of pytest-benchmark: no names of hosts."""
    machine = result["machine_info"]
    names = ("step", "n_rows", "seconds", "peak_bytes", "file_bytes")
    found = [benchmark["extra_info"] for benchmark in result["benchmarks"]]
    return {
        "date": str(date.fromisoformat(result["datetime"][:10])),
        "cpu": machine["cpu"]["brand_raw"],
        "cores": machine["cpu"]["count"],
        "memory_bytes": found[0]["memory_bytes"],
        "python": machine["python_version"],
        "rows": [{name: one[name] for name in names} for one in found],
    }


def render(result: dict[str, Any]) -> str:
    """The text between the marks."""
    sizes = sorted({row["n_rows"] for row in result["rows"]})
    of = {(row["step"], row["n_rows"]): row for row in result["rows"]}
    heads = [f"{size // 1_000_000} million: s" for size in sizes]
    memory = f"{result['memory_bytes'] / 2**30:.0f} GiB of memory"
    lines = [
        f"{result['date']}, {result['cores']} cores ({result['cpu']}), {memory}, Python {result['python']}.",
        "",
        "| | " + " | ".join(f"{head} | GiB" for head in heads) + " | time of ten times the rows |",
        "|" + "---|" * (2 * len(sizes) + 2),
    ]
    for step in dict.fromkeys(row["step"] for row in result["rows"]):
        cells = [f"{of[step, n]['seconds']:.3g} | {of[step, n]['peak_bytes'] / 2**30:.2f}" for n in sizes]
        lines.append(f"| {step} | {' | '.join(cells)} | {times(result, step):.1f}x |")
    bytes_a_row = of["load", sizes[-1]]["file_bytes"] / sizes[-1]
    return "\n".join([*lines, "", f"The file of the largest has {bytes_a_row:.1f} bytes a row.", ""])


def times(result: dict[str, Any], step: str) -> float:
    """Seconds with ten million rows over those with one million."""
    seconds = {row["n_rows"]: row["seconds"] for row in result["rows"] if row["step"] == step}
    return float(seconds[10_000_000] / seconds[1_000_000])


def test_page_is_what_was_measured():
    text = PAGE.read_text()
    assert text.split(OPENING)[1].split(CLOSING)[0] == render(json.loads(SOURCE.read_text()))


def test_measured_growth_is_linear_and_fits_the_memory():
    result = json.loads(SOURCE.read_text())
    steps = {row["step"] for row in result["rows"]}
    assert steps == {"append", "load", "filter", "score"}
    assert all(times(result, step) <= MOST_TIMES for step in steps)
    assert max(row["peak_bytes"] for row in result["rows"]) <= MOST_BYTES


if __name__ == "__main__":
    SOURCE.write_text(json.dumps(reduced(json.loads(Path(sys.argv[1]).read_text())), indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(OPENING)
    PAGE.write_text(before + OPENING + render(json.loads(SOURCE.read_text())) + CLOSING + rest.partition(CLOSING)[2])
