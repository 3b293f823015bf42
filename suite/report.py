"""Scores as tables for a terminal; no figure is computed here."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.table import Table as RichTable
from rich.text import Text

from tilearena.bench_live import LiveResult
from tilearena.score import Score, order

#: Styled text, not markup: names of plugins and files may hold brackets.
FAILED, DECLINED = Text("failed", "red"), Text("declined", "yellow")


def device_title(device: str, origins: Iterable[str]) -> str:
    """A device, and beside it where its recordings come from if not all were measured by tilearena."""
    imported = ", ".join(sorted(set(origins) - {"measured"}))
    return f"{device}, imported ({imported})" if imported else device


def percent(score: Score, name: str, digits: int = 1) -> str:
    """A fraction as per cent, or a dash."""
    value = score.figures[name].value
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def interval(score: Score, name: str) -> str:
    """The 95 % interval of a fraction, in per cent."""
    figure = score.figures[name]
    return "" if figure.lo is None or figure.hi is None else f"{100 * figure.lo:.1f}..{100 * figure.hi:.1f}"


def times(score: Score, name: str) -> str:
    """A ratio, or a dash."""
    value = score.figures[name].value
    return "-" if value is None else f"{value:.3f}x"


def _subject(score: Score) -> Text:
    """Heading of a section: what the rows below are about."""
    key = score.key
    emulated = ", emulated on this device" if key.support == "emulated" else ""
    title = (f"{key.spec} {key.dtype} {key.protocol} {key.split}", "bold")
    return Text.assemble(title, f" ({score.n_problems} problems{emulated})")


def _best(score: Score) -> str:
    """What the best templates of a section gain over cuBLASLt, and on how many problems if not on all."""
    if not score.n_vendor:
        return ""
    some = "" if score.n_vendor == score.n_problems else f"\non {score.n_vendor}"
    return f"best {times(score, 'oracle_speedup_vs_cublaslt_geomean')}{some}"


def _outcome(score: Score) -> Text:
    return DECLINED if score.declined else FAILED


def _refusals(scores: Sequence[Score]) -> Text:
    """Why predictors declined what they were asked, each reason once."""
    return Text("\n".join(dict.fromkeys(score.reason for score in scores if score.declined)))


def score_table(scores: Sequence[Score], title: str) -> RichTable:
    """One row a score, in sections by subject, best first as on the board; a failed predictor is a row that says so."""
    columns = (
        "predictor",
        "top2",
        "95 %",
        "regret",
        "p99",
        "speedup",
        "of best",
        "vs cuBLASLt",
        "gap closed",
        "slower",
        "us",
        "failed",
    )
    table = RichTable(*columns, title=title, caption=_refusals(scores))
    for subject, group in groupby(scores, _subject):
        ordered = sorted(group, key=_place)
        table.add_section()
        table.add_row(subject, *[""] * 6, _best(ordered[0]))
        for score in ordered:
            table.add_row(*_row(score))
    return table


def _place(score: Score) -> tuple[bool, bool, float, float]:
    return order(score.status, score.figures["top2"].value, score.figures["regret_mean"].value)


def _row(score: Score) -> tuple[str | Text, ...]:
    if score.status == "failed":
        return (score.key.predictor, _outcome(score), *[""] * 9, str(score.n_failed))
    predict_us = score.figures["predict_us"].value
    return (
        score.key.predictor,
        percent(score, "top2"),
        interval(score, "top2"),
        percent(score, "regret_mean", 2),
        percent(score, "regret_p99", 1),
        times(score, "speedup_geomean"),
        times(score, "oracle_speedup_geomean"),
        times(score, "speedup_vs_cublaslt_geomean"),
        percent(score, "gap_closed"),
        percent(score, "slowdown_share"),
        "-" if predict_us is None else f"{predict_us:.1f}",
        str(score.n_failed),
    )


def live_table(results: Sequence[LiveResult], vendor: str, title: str) -> RichTable:
    """One row a predictor, best first: accuracy by the first pass, speedups by the fresh run."""
    columns = ("predictor", "trained", "top2", "regret", "fresh speedup", "95 %", "slower", "failed", f"over {vendor}")
    table = RichTable(*columns, title=title, caption=_refusals([result.first for result in results]))
    for dtype, group in groupby(results, lambda result: result.first.key.dtype):
        ordered = sorted(group, key=lambda result: _place(result.first))
        first = ordered[0].first
        emulated = ", emulated on this device" if first.key.support == "emulated" else ""
        table.add_section()
        title_ = (f"{first.key.spec} {dtype}", "bold")
        table.add_row(Text.assemble(title_, f" ({first.n_problems} problems{emulated})"))
        for result in ordered:
            table.add_row(*_live_row(result))
    return table


def _live_row(result: LiveResult) -> tuple[str | Text, ...]:
    first, fresh = result.first, result.fresh
    if first.status == "failed":
        return (first.key.predictor, result.trained, _outcome(first), *[""] * 4, str(first.n_failed))
    figure = fresh.figures["speedup_geomean"]
    over = times(fresh, "speedup_vs_cublaslt_geomean")
    return (
        first.key.predictor,
        result.trained,
        percent(first, "top2"),
        percent(first, "regret_mean", 2),
        times(fresh, "speedup_geomean"),
        "" if figure.lo is None or figure.hi is None else f"{figure.lo:.3f}..{figure.hi:.3f}",
        percent(fresh, "slowdown_share"),
        str(fresh.n_failed),
        f"{over} of {fresh.n_vendor}" if fresh.n_vendor else over,
    )


def failures(scores: Sequence[Score]) -> list[str]:
    """One sentence for each predictor that failed; to decline what one does not serve is no failure."""
    keys = [(s.key, s.reason) for s in scores if s.status == "failed" and not s.declined]
    return [f"{key.predictor} on {key.spec} {key.dtype} {key.protocol}: {reason}" for key, reason in keys]
