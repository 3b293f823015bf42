"""A folder of submissions -> rows, rankings, and what the charts show. Pure but for reading files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilearena import dataset
from tilearena.dataset import Floats, Ints, Recording, Table
from tilearena.errors import SubmissionError
from tilearena.figures import picked
from tilearena.records import Record
from tilearena.submission import Submission, folder, read

Row = dict[str, Any]

#: What anything must beat; shown in the ranking without a place of their own.
BASELINES = ("oracle", "nearest", "constant", "default")


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


@dataclass(frozen=True)
class Board:
    """All results below a root, and one sentence for each submission that cannot be read."""

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


def load(root: Path) -> Board:
    """Read every submission below ``root``; none is recomputed here, that is what ``tilearena check`` does."""
    rows: list[Row] = []
    refused: list[str] = []
    for path in submission_paths(root):
        try:
            rows += _rows(root, read(path))
        except SubmissionError as error:
            refused.append(str(error))
    return Board(rows, refused)


def _rows(root: Path, submission: Submission) -> list[Row]:
    manifest = submission.manifest
    return [
        {
            **result.key.model_dump(),
            **result.figures,
            "status": result.status,
            "reason": result.reason,
            "recording": result.fingerprints.test,
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
    wanted = view.model_dump().items()
    chosen = sorted((row for row in rows if wanted <= row.items()), key=_order)
    ranked, place = [], 0
    for row in chosen:
        baseline = row["predictor"] in BASELINES
        counts = row["status"] == "ok" and not baseline
        place += counts
        ranked.append({**row, "baseline": baseline, "place": place if counts else None})
    return ranked


def _order(row: Row) -> tuple[Any, ...]:
    top2, regret = row.get("top2"), row.get("regret_mean")
    unknown = top2 is None or regret is None
    return (row["status"] != "ok", unknown, -(top2 or 0), regret or 0, row["predictor"], row["version"])


def recording_path(root: Path, view: View) -> Path:
    """The recording that the rows of ``view`` were judged by."""
    return dataset.find_path(root, view.device, view.spec, view.space, view.dtype, view.protocol, view.op)


def picks_of(root: Path, row: Row, recording: Recording) -> Ints | None:
    """The picks of a row loaded from ``root``: int64 [P, 8], or None if made for another recording."""
    if row["recording"] != recording.header.fingerprint:
        return None
    picks = read(root / row["path"]).picks[row["result"]]
    n_problems, n_templates = recording.table.time_ns.shape
    return picks if len(picks) == n_problems and picks.max() < n_templates else None


def regrets(table: Table, picks: Ints) -> Floats:
    """t(pick)/t(best) - 1 of the first of ``picks`` [P, R]: [P], NaN where no template is feasible."""
    measured = np.isfinite(table.time_ns).any(axis=1)
    regret = np.full(len(picks), np.nan)
    time_ns = table.time_ns[measured]
    regret[measured] = picked(time_ns, picks[measured, :1])[0][:, 0] / time_ns.min(axis=1) - 1
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
    rows = np.flatnonzero(k_band(table.problems, k) & np.isfinite(table.time_ns).any(axis=1))
    labels = [template.label for template in table.task.templates]

    def named(indices: Sequence[int] | Ints) -> list[str]:
        return [labels[i] if i >= 0 else "none" for i in indices]

    best = table.time_ns[rows].argmin(axis=1)
    return Slice(table.problems[rows], named(best), named(picks[rows, 0]), regrets(table, picks)[rows])
