"""A folder of submissions -> rows, rankings, and what the charts show. Pure but for reading files.

A figure that does not follow from its picks and the recording is no row. That does not make the picks honest: verified
means refitted, and no row is marked so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilearena import plugins
from tilearena.check import Finding, open_sources, verify
from tilearena.errors import SubmissionError
from tilearena.figures import measured, picked
from tilearena.judge import Sources
from tilearena.records import Record
from tilearena.root import find_path
from tilearena.score import Key, order
from tilearena.submission import Submission, folder, read
from tilearena.table import Floats, Ints, Table

Row = dict[str, Any]


class View(Record):
    """What rows must share to be ranked against each other; ``support`` keeps emulated apart from native."""

    device: str
    spec: str
    dtype: str
    protocol: str
    split: str
    space: str
    op: str
    support: str
    train_spec: str


@dataclass(frozen=True)
class Board:
    """All results below a root that hold, and one sentence for each submission that does not or cannot be read."""

    rows: list[Row]
    refused: list[str]


@dataclass(frozen=True)
class Slice:
    """Problems with a similar K: ``problems`` [Q, 3], the label of the best and the picked template, and its regret."""

    problems: Ints
    best: list[str]
    pick: list[str]
    regret: Floats


def submission_paths(root: Path) -> list[Path]:
    """Every submission's JSON below ``root``, in order."""
    return sorted(folder(root).glob("*/*/*/*.json"))


def load(root: Path, recordings: Path) -> Board:
    """Read every submission below ``root`` and recompute its figures by the recordings below ``recordings``.

    Intervals are as claimed, since they take a bootstrap; ``tilearena check`` recomputes them too.
    """

    @cache
    def opened(key: Key) -> Sources:
        return open_sources(recordings, key)

    def sources_of(key: Key) -> Sources:
        return opened(key.model_copy(update={"predictor": "any", "version": "any"}))

    rows: list[Row] = []
    refused: list[str] = []
    for path in submission_paths(root):
        try:
            submission = read(path)
            findings = verify(submission, sources_of, quick=True)
        except SubmissionError as error:
            refused.append(str(error))
            continue
        if findings:
            refused.append(_sentence(findings))
        else:
            rows += _rows(root, submission)
    return Board(rows, refused)


def _sentence(findings: Sequence[Finding]) -> str:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0]}{more}"


def _rows(root: Path, submission: Submission) -> list[Row]:
    manifest = submission.manifest
    return [
        {
            **result.key.model_dump(),
            **result.figures,
            "status": result.status,
            "reason": result.reason,
            "submitter": manifest.submitter,
            "created_at": manifest.created_at.isoformat(),
            "path": submission.path.relative_to(root).as_posix(),
            "result": i,
        }
        for i, result in enumerate(manifest.results)
    ]


def views(rows: Iterable[Row]) -> list[View]:
    """Every view that has a row, in order of appearance."""
    return list(dict.fromkeys(View(**{name: row[name] for name in View.model_fields}) for row in rows))


def ranking(rows: Iterable[Row], view: View) -> list[Row]:
    """The rows of ``view``, best first: by top2, then by mean regret; failed ones last, never dropped.

    Adds ``baseline`` and ``place``: 1, 2, ... for predictors, None for baselines and failures.
    """
    wanted, baselines = view.model_dump().items(), plugins.baselines()
    chosen = sorted((row for row in rows if wanted <= row.items()), key=_order)
    ranked, place = [], 0
    for row in chosen:
        baseline = row["predictor"] in baselines
        counts = row["status"] == "ok" and not baseline
        place += counts
        ranked.append({**row, "baseline": baseline, "place": place if counts else None})
    return ranked


def _order(row: Row) -> tuple[Any, ...]:
    return *order(row["status"], row.get("top2"), row.get("regret_mean")), row["predictor"], row["version"]


def recording_path(root: Path, view: View) -> Path:
    """The recording that the rows of ``view`` were judged by."""
    return find_path(root, view.device, view.spec, view.space, view.dtype, view.protocol, view.op)


def picks_of(root: Path, row: Row) -> Ints:
    """The picks of a row loaded from ``root``: int64 [P, 8]."""
    return read(root / row["path"]).picks[row["result"]]


def regrets(table: Table, picks: Ints) -> Floats:
    """t(pick)/t(best) - 1 of the first of ``picks`` [P, R]: [P], NaN where no template is feasible."""
    rows = measured(table)
    regret = np.full(len(picks), np.nan)
    time_ns = table.time_ns[rows]
    regret[rows] = picked(time_ns, picks[rows, :1])[0][:, 0] / time_ns.min(axis=1) - 1
    return regret


def k_choices(problems: Ints) -> list[int]:
    """Powers of two whose band holds some of ``problems`` [P, 3]."""
    return [int(k) for k in 2 ** np.unique(np.round(np.log2(problems[:, 2])).astype(int))]


def k_band(problems: Ints, k: int) -> npt.NDArray[np.bool_]:
    """Which problems [P] have a K nearer to ``k`` than to its double or its half, by ratio."""
    nearest: npt.NDArray[np.bool_] = np.round(np.log2(problems[:, 2])) == round(np.log2(k))
    return nearest


def slice_at(table: Table, picks: Ints, k: int) -> Slice:
    """The measured problems around ``k``: what was best there and what ``picks`` [P, R] put first."""
    rows = np.flatnonzero(k_band(table.problems, k) & measured(table))
    labels = [template.label for template in table.task.templates]

    def named(indices: Sequence[int] | Ints) -> list[str]:
        return [labels[i] if i >= 0 else "none" for i in indices]

    best = table.time_ns[rows].argmin(axis=1)
    return Slice(table.problems[rows], named(best), named(picks[rows, 0]), regrets(table, picks)[rows])
