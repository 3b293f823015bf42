"""The referee: recompute every figure of a submission from its picks and the recordings, and compare.

Figures that follow from the picks are right, but that does not make the picks honest: only a refit verifies them.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilearena.errors import PredictorError, RecordingError, SpecError, SubmissionError
from tilearena.judge import Sources, judge
from tilearena.manifest import SEED, Fingerprints, Result
from tilearena.plugins import PRIVILEGED
from tilearena.score import Key, Score, constant_pick
from tilearena.submission import Submission, path_for, read
from tilearena.table import Ints

#: A time on the submitter's machine does not follow from the picks: it is checked for being a time, no more.
NOT_RECOMPUTED = ("predict_us",)
#: Sums may be ordered differently by another BLAS; nothing else may differ.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


@dataclass(frozen=True)
class Finding:
    """One claim that does not hold."""

    path: Path
    result: str
    field: str
    claimed: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: {self.result}: {self.field} is claimed as {self.claimed}, recomputed {self.recomputed}"


def check(path: Path, root: Path) -> list[Finding]:
    """Every claim in the submission at ``path`` that the recordings below ``root`` do not bear out; empty is good.

    ``predict_us`` is not recomputed (see ``NOT_RECOMPUTED``).

    Raises:
        SubmissionError: it cannot be read or recomputed: malformed, picks that do not fit the recording, no recording.
    """
    return verify(read(path), partial(open_sources, root))


def open_sources(root: Path, key: Key) -> Sources:
    """The recordings below ``root`` that a result of ``key`` must follow from, of what the names mean now.

    Raises:
        RecordingError, SpecError: see `Sources.open`, `Sources.require_measured` and `Sources.require`.
    """
    sources = Sources.open(root, key)
    sources.require_measured()
    sources.require()
    return sources


def verify(submission: Submission, sources_of: Callable[[Key], Sources], *, quick: bool = False) -> list[Finding]:
    """As `check`, for a submission in memory; ``sources_of`` opens the recordings of a result.

    ``quick`` takes intervals as they are claimed, unless a top2 above its ceiling asks for them; a result of 2,000
    problems then takes milliseconds.
    """
    path, found = submission.path, list[Finding]()
    for result, picks in zip(submission.manifest.results, submission.picks, strict=True):
        try:
            sources = sources_of(result.key)
            differences = list(_identity(result, sources))
            if not differences:
                _check_fit(path, result, picks, sources)
                score = rescore(result, picks, sources, intervals=not quick)
                if quick and _above_ceiling(score):
                    score = rescore(result, picks, sources)
                differences = list(_figures(result, score, quick))
        except (RecordingError, SpecError, PredictorError) as error:
            raise SubmissionError(f"{path}: {result.label} cannot be recomputed: {error}") from None
        found += [Finding(path, result.label, *difference) for difference in differences]
    return found


def rescore(result: Result, picks: Ints, sources: Sources, *, intervals: bool = True) -> Score:
    """The score that ``picks`` [P, 8] deserve by ``sources``, under the result's key, seed and ``predict_us``."""
    key, table = result.key, sources.test.table
    constant_picks = np.full(len(table.problems), -1, dtype=np.int64)
    for fold in sources.folds(key, result.seed):
        constant_picks[fold.test_rows] = constant_pick(fold.train)
    predict_us = result.figures.get("predict_us")
    return judge(
        sources,
        key,
        picks,
        constant_picks,
        predict_us=predict_us,
        reason=result.reason,
        seed=result.seed,
        intervals=intervals,
    )


def stored_picks(
    root: Path, key: Key, fingerprints: Fingerprints, seed: int, code_fingerprint: str | None
) -> tuple[Result, Ints] | None:
    """The stored result of ``key`` and its picks [P, 8], if made from just these sources, seed and code.

    The version follows from the code, so that of ``key`` does not count: it cannot be known without running the plugin.
    Failed results, files that cannot be read, and predictors without source are not offered.
    """
    if code_fingerprint is None:
        return None
    wanted = (fingerprints, seed, code_fingerprint, "ok")
    for submission in _versions(path_for(root, key.device, key.spec, key.predictor, key.version).parent):
        for result, picks in zip(submission.manifest.results, submission.picks, strict=True):
            same_key = result.key == key.model_copy(update={"version": result.key.version})
            if same_key and (result.fingerprints, result.seed, result.code_fingerprint, result.status) == wanted:
                return result, picks
    return None


def _versions(folder: Path) -> list[Submission]:
    """The readable submissions of one predictor, latest first."""
    found = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(SubmissionError):
            found.append(read(path))
    return sorted(found, key=lambda submission: submission.manifest.created_at, reverse=True)


def _identity(result: Result, sources: Sources) -> Iterator[tuple[str, Any, Any]]:
    """What is claimed about the origin and does not hold: (field, claimed, recomputed)."""
    header = sources.test.header
    facts = {
        "op": header.op,
        "spec": header.spec,
        "space": header.space,
        "dtype": header.dtype,
        "protocol": header.protocol.name,
        "device": header.device.slug,
        "support": header.support,
        "train_spec": sources.train.header.spec,
    }
    for name, fact in facts.items():
        if getattr(result.key, name) != fact:
            yield f"key.{name}", getattr(result.key, name), fact
    for name, fact in sources.fingerprints:
        claimed = getattr(result.fingerprints, name)
        if claimed != fact:
            yield f"fingerprints.{name}", claimed, fact
    if result.seed != SEED:
        yield "seed", result.seed, SEED


def _check_fit(path: Path, result: Result, picks: Ints, sources: Sources) -> None:
    n_problems, n_templates = sources.test.table.time_ns.shape
    if len(picks) != n_problems:
        raise SubmissionError(
            f"{path}: {result.label} has picks for {len(picks)} problems, its recording has {n_problems}; give all"
        )
    unasked = picks[:, 0] >= 0
    unasked[sources.tested(result.key)] = False
    if unasked.any():
        raise SubmissionError(
            f"{path}: {result.label} has a pick for problem {unasked.argmax()}, which its split does not test; "
            "its picks must be -1"
        )
    outside = np.argwhere(picks >= n_templates)
    if len(outside):
        row, column = outside[0]
        raise SubmissionError(
            f"{path}: {result.label} problem {row}: pick_{column + 1} is {picks[row, column]}, but the space "
            f"{result.key.space} has templates 0..{n_templates - 1}"
        )


def _above_ceiling(score: Score) -> bool:
    top2, ceiling = score.figures["top2"].value, score.figures["ceiling_top2"].value
    return score.key.predictor != PRIVILEGED and top2 is not None and ceiling is not None and top2 > ceiling


def _figures(result: Result, score: Score, quick: bool) -> Iterator[tuple[str, Any, Any]]:
    """Figures that differ, and a top2 that no honest predictor reaches: (field, claimed, recomputed)."""
    actual = {name: value for name, value in score.flat().items() if name not in Key.model_fields}
    claimed = {"status": result.status, "reason": result.reason, **result.figures}
    for name in actual | claimed:
        if quick and name.endswith(("_lo", "_hi")):
            continue
        ours, theirs = actual.get(name, "nothing"), claimed.get(name, "nothing")
        if not _same(ours, theirs):
            yield name, theirs, ours
    predict_us = result.figures.get("predict_us")
    if predict_us is not None and predict_us <= 0:
        yield "predict_us", predict_us, "a time above 0"
    low, ceiling = score.figures["top2"].lo, score.figures["ceiling_top2"].hi
    if low is None or ceiling is None or result.key.predictor == PRIVILEGED:
        return
    # A repeat misses by its own noise and by the recording's, a predictor that knows the truth by the recording's
    # alone: with equal noise that leaves about 0.7 of the misses; half of them is the line.
    if low > (limit := 1 - (1 - ceiling) / 2):
        yield "top2", f"at least {low}", f"impossible: with ceiling_top2 at most {ceiling}, noise allows {limit}"


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(ours) is type(theirs) and bool(ours == theirs)
