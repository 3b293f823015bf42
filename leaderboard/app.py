"""The page: ``streamlit run app.py -- ROOT SUBMISSIONS``. Layout only; figures come from ``table`` and ``charts``."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import streamlit as st

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.leaderboard import charts, table
from tilearena.leaderboard.table import Board, Row, View
from tilearena.root import recorded
from tilearena.splits import selected
from tilearena.submission import folder

MAIN = ("device", "spec", "dtype", "protocol", "split")
RARE = ("space", "op", "support", "train_spec")
#: The glossary in one line each.
MEANING = {
    "top2": "share of problems where one of the first two ranked templates is the fastest",
    "regret_mean": "mean of t(pick)/t(best) - 1 over problems",
    "speedup_geomean": "geometric mean of t(default)/t(pick)",
    "speedup_vs_cublaslt_geomean": "geometric mean of t(cuBLASLt)/t(pick) where cuBLASLt ran",
    "gap_closed": "how much of the log regret of the best constant template is avoided: 0 for it, 100 % for the best",
    "ceiling_top2": "top2 of the choice by one other measurement; knowing the truth would do a little better",
}
Stamp = tuple[tuple[str, int], ...]


@st.cache_data(show_spinner="Reading submissions and recomputing their figures")
def _board(submissions: Path, root: Path, stamp: Stamp) -> Board:
    return table.load(submissions, root)


@st.cache_data(show_spinner="Reading the recording", max_entries=8)
def _recording(path: Path, stamp: Stamp) -> Recording:
    return dataset.read(path)


def _stamp(paths: list[Path]) -> Stamp:
    """Files and when they changed: the key of what was read from them."""
    both = [p for path in paths for p in (path, path.with_suffix(".parquet"))]
    return tuple((str(p), p.stat().st_mtime_ns) for p in dict.fromkeys(both) if p.exists())


def main(root: Path, submissions: Path) -> None:
    """Draw the page for the recordings below ``root`` and the submissions below ``submissions``, often the same."""
    st.set_page_config(page_title="tilearena", page_icon=":material/grid_on:", layout="wide")
    st.title("tilearena")
    st.markdown("Which CUTLASS tile and how many stages? Predictors for low-bit GEMM, judged by measured times.")
    board = _board(submissions, root, _stamp([*table.submission_paths(submissions), *recorded(root)]))
    _refused(board)
    if not board.rows:
        st.info(f"No submission below {folder(submissions)}: `tilearena bench` or `tilearena submit` writes some.")
        return
    view = _select(table.views(board.rows))
    if view.support == "emulated":
        st.warning(
            f"{view.dtype} is **emulated** on this device: it has no such instruction. "
            "These results are not compared with native ones."
        )
    rows = table.ranking(board.rows, view)
    _headline(rows)
    _ranking(rows)
    path = table.recording_path(root, view)
    _charts(submissions, rows, view, _recording(path, _stamp([path])))


def _refused(board: Board) -> None:
    if board.refused:
        with st.expander(f"{len(board.refused)} submission(s) refused"):
            st.text("\n".join(board.refused))


def _select(views: list[View]) -> View:
    """One selector for each part of the key; the rarer parts only where they leave a choice."""
    columns = st.columns(len(MAIN))
    for i, name in enumerate((*MAIN, *RARE)):
        options = list(dict.fromkeys(getattr(view, name) for view in views))
        choice = options[0]
        if name in MAIN:
            choice = columns[i].selectbox(name, options, key=name)
        elif len(options) > 1:
            choice = st.selectbox(name, options, key=name)
        views = [view for view in views if getattr(view, name) == choice]
    return views[0]


def _headline(rows: list[Row]) -> None:
    first = next((row for row in rows if row["place"] == 1), None)
    if first is None:
        return
    st.subheader(f"First: {first['predictor']}", anchor=False)
    shown = (
        _percent(first, "top2"),
        _percent(first, "regret_mean", 2),
        _times(first, "speedup_geomean"),
        _times(first, "speedup_vs_cublaslt_geomean"),
        _percent(first, "gap_closed"),
        _percent(first, "ceiling_top2"),
    )
    columns = st.columns([max(len(name), 16) for name in MEANING])  # so that no name is cut
    for (name, meaning), value, column in zip(MEANING.items(), shown, columns, strict=True):
        column.metric(name, value, help=meaning)


def _ranking(rows: list[Row]) -> None:
    st.subheader("Ranking", anchor=False)
    cells = [
        {
            "place": str(row["place"] or ""),
            "predictor": f"{row['predictor']} {row['version']}{_mark(row)}",
            "top2 [95 %]": _percent(row, "top2") + _interval(row, "top2"),
            "regret_mean": _percent(row, "regret_mean", 2),
            "speedup_geomean": _times(row, "speedup_geomean"),
            "speedup_vs_cublaslt_geomean": _times(row, "speedup_vs_cublaslt_geomean"),
            "gap_closed": _percent(row, "gap_closed"),
            "slowdown_share": _percent(row, "slowdown_share"),
            "predict_us": _number(row, "predict_us", "{:.3g} µs"),
            "n_failed": f"{row.get('n_failed')} of {row.get('n_problems')}",
        }
        for row in rows
    ]
    st.table(pa.Table.from_pylist(cells))
    for row in rows:
        if row["status"] != "ok":
            st.text(f"{row['predictor']} {row['version']} failed: {row['reason']}")
    st.caption(
        "Ordered by top2, then by regret_mean; baselines have no place. Figures follow from the submitted picks and "
        "the recording; the picks were not refitted, so no row is verified. tilearena check recomputes the intervals."
    )
    first = rows[0]  # what it says of cuBLASLt and of the best templates, all say
    if first["n_vendor"]:
        st.caption(
            f"cuBLASLt (its heuristic's first answer) ran on {first['n_vendor']} of {first['n_problems']} problems; "
            f"the best templates are {_times(first, 'oracle_speedup_vs_cublaslt_geomean')} as fast there."
        )


def _charts(submissions: Path, rows: list[Row], view: View, recording: Recording) -> None:
    _provenance(view, recording)
    drawn = [row for row in rows if row["status"] == "ok"]
    tested_rows = selected(view.split, view.spec, recording.table.problems)
    tested = recording.table.take(tested_rows)
    picks = {f"{row['predictor']} {row['version']}": table.picks_of(submissions, row)[tested_rows] for row in drawn}
    if not picks:
        return
    st.subheader("Regret", anchor=False)
    regrets = {name: table.regrets(tested, p) for name, p in picks.items()}
    style = charts.predictor_style([name.split(" ")[0] for name in picks])
    st.plotly_chart(charts.regret_ecdf(regrets, style), config={"displaylogo": False}, key="ecdf")
    st.subheader("Best template by M and N", anchor=False)
    left, right = st.columns(2)
    choices = table.k_choices(tested.problems)
    k = left.select_slider("K, to the nearest power of two", choices, value=choices[len(choices) // 2])
    names = list(picks)
    first = next((i for i, row in enumerate(drawn) if not row["baseline"]), 0)
    picker = right.selectbox("beside the picks of", names, index=first)
    chosen = table.slice_at(tested, picks[picker], k)
    labels = [template.label for template in tested.task.templates]
    st.plotly_chart(charts.template_map(chosen, labels, picker), config={"displaylogo": False}, key="map")
    repeated = " Colours repeat, since there are more tiles than hues." if charts.repeats(labels) else ""
    st.caption(f"{len(chosen.problems)} problems. A colour is a tile, its shade and shape the stages.{repeated}")


def _provenance(view: View, recording: Recording) -> None:
    header = recording.header
    device = header.device
    noise = "unknown" if header.noise_floor is None else f"{100 * header.noise_floor:.2f} %"
    st.caption(
        f"Recorded on {device.product} ({device.sm_count} SMs, driver {device.driver or 'unknown'}) on "
        f"{header.started_at[:10]}; {view.protocol} L2, {header.protocol.rounds} rounds, A/A noise {noise}, "
        f"{len(recording.table.problems)} problems; recording {header.fingerprint}."
    )


def _mark(row: Row) -> str:
    if row["status"] != "ok":
        return " (failed)"
    return " (baseline)" if row["baseline"] else ""


def _number(row: Row, name: str, form: str, scale: float = 1) -> str:
    value: Any = row.get(name)
    return "n/a" if value is None else form.format(scale * value)


def _percent(row: Row, name: str, digits: int = 1) -> str:
    return _number(row, name, f"{{:.{digits}f}} %", 100)


def _times(row: Row, name: str) -> str:
    return _number(row, name, "{:.3f}x")


def _interval(row: Row, name: str) -> str:
    if row.get(f"{name}_lo") is None or row.get(f"{name}_hi") is None:
        return ""
    return f" [{100 * row[f'{name}_lo']:.1f}, {100 * row[f'{name}_hi']:.1f}]"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
