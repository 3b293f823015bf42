"""What `tilearena search` found, as JSON, a table for a terminal, and Markdown; no figure is computed here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table as RichTable

from tilearena.datasheet.tables import table as markdown_table

#: Why the figures of a search are too good.
CURSE = (
    "rewarded and judged by the same medians, so at k = {n_templates} nothing is lost; a tuner that times for itself "
    "loses to noise, see --by-repeat"
)


@dataclass(frozen=True)
class Report:
    """``head`` says of what ``rows`` are, all of JSON's types; ``columns`` and ``cells`` are the rows for people."""

    head: dict[str, Any]
    rows: list[dict[str, Any]]
    title: str
    columns: tuple[str, ...]
    cells: list[tuple[str, ...]]
    notes: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """One object."""
        return self.head | {"rows": self.rows}

    def rich(self) -> RichTable:
        """For a terminal, to go between title and notes."""
        shown = RichTable(*self.columns)
        for row in self.cells:
            shown.add_row(*row)
        return shown

    def markdown(self) -> str:
        """A page's section."""
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"**{self.title}**", "", *markdown_table(self.columns, self.cells), "", *notes, ""])


def percent(row: dict[str, Any], name: str) -> str:
    """A fraction and its 95 % interval, in per cent, or a dash."""
    value, low, high = (row.get(name + suffix) for suffix in ("", "_lo", "_hi"))
    if value is None or low is None or high is None:
        return "-"
    return f"{100 * value:.2f} % ({100 * low:.2f}..{100 * high:.2f})"


def of_curves(head: dict[str, Any], rows: list[dict[str, Any]], notes: Sequence[str]) -> Report:
    """k x strategy: mean regret of the best of k measurements."""
    strategies = tuple(dict.fromkeys(row["strategy"] for row in rows))
    at = {(row["strategy"], row["k"]): row for row in rows}
    ks = sorted({row["k"] for row in rows})
    cells = [(str(k), *(percent(at.get((name, k), {}), "regret_mean") for name in strategies)) for k in ks]
    curse = () if head["reward"] == "repeat" else (CURSE.format(**head),)
    return Report(
        head, rows, _title(head, "mean regret after k measurements"), ("k", *strategies), cells, (*notes, *curse)
    )


def of_measured(head: dict[str, Any], rows: list[dict[str, Any]], notes: Sequence[str]) -> Report:
    """One row a predictor: what it keeps of its first k picks, and what measuring them costs."""
    columns = ("predictor", "first pick", "best of k", "best of k, live", "failed", "timed, ms", "in all, ms")
    cells = [
        (
            row["predictor"],
            *(percent(row, name) for name in ("first_regret_mean", "regret_mean", "live_regret_mean")),
            str(row["n_failed"]),
            *(_milliseconds(row[name]) for name in ("timed_s_per_problem", "seconds_per_problem")),
        )
        for row in rows
    ]
    return Report(head, rows, _title(head, f"mean regret, k = {head['k']}"), columns, cells, tuple(notes))


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.2f}"


def _title(head: dict[str, Any], what: str) -> str:
    names = " ".join(head[name] for name in ("spec", "space", "dtype", "protocol", "split"))
    some = "" if head["n_problems"] == head["n_of"] else f" of {head['n_of']}"
    return f"{names} on {head['device']}: {what}, {head['n_problems']}{some} problems"
