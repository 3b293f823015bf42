"""Recordings -> the scores of predictors: the path that `score`, `submit` and `bench` share."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilearena import predict
from tilearena.check import rescore, stored_picks
from tilearena.errors import RecordingError, SpecError, TilearenaError
from tilearena.judge import Sources, judge
from tilearena.out_of_reach import NOTICE
from tilearena.plugin_code import code_fingerprint
from tilearena.predict import Prediction
from tilearena.progress import progress_bar
from tilearena.records import Dtype, ProtocolName
from tilearena.score import Key
from tilearena.space import Space
from tilearena.spec import Workload
from tilearena.splits import Split, train_spec_for
from tilearena.submission import Scored

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Subject:
    """What is scored, except by whom; ``train_spec`` is what the split ``models`` trains on, None for the usual one."""

    spec: str
    space: str
    dtype: Dtype
    protocol: ProtocolName
    device: str
    split: Split
    op: str = "gemm"
    train_spec: str | None = None

    def key(self, predictor: str, version: str, support: str = "native") -> Key:
        """The key of one predictor's result."""
        train_spec = train_spec_for(self.split, self.spec, self.train_spec)
        return Key.model_validate(
            {**self.__dict__, "predictor": predictor, "version": version}
            | {"train_spec": train_spec, "support": support}
        )


def evaluate(
    root: Path,
    subject: Subject,
    predictors: Sequence[str],
    *,
    workload: Workload | None = None,
    space: Space | None = None,
    refit: bool = False,
    seed: int = 0,
    time_limit_s: float = predict.TIME_LIMIT_S,
    memory_limit_bytes: int = predict.MEMORY_LIMIT_BYTES,
    roots: Sequence[Path] = (),
    progress: Progress = lambda done, total, label: None,
) -> list[Scored]:
    """Score each of ``predictors`` on one recording, in the order given; a failing one is there with its reason.

    Stored out-of-fold picks are used where every fingerprint matches, that of the predictor's code too, unless
    ``refit``. ``workload`` and ``space`` are what the subject's names mean; what ships under them unless given.
    ``roots`` are others than ``root`` of which no predictor may read recordings or submissions.

    Raises:
        RecordingError, SpecError: no such recording, one of another content, or a split that does not suit it.
    """
    key = subject.key("any", "any")
    sources = Sources.open(root, key)
    sources.require(workload, space)
    folds = sources.folds(key, seed)
    scored = []
    for done, name in enumerate(predictors):
        progress(done, len(predictors), name)
        code = code_fingerprint(name)
        found = None if refit else _stored(root, subject, sources, name, seed, code)
        if found is None:
            prediction = predict.cross_fit(
                name,
                folds,
                sources.test.table,
                seed=seed,
                time_limit_s=time_limit_s,
                memory_limit_bytes=memory_limit_bytes,
                roots=[root, *roots],
            )
            found = _judged(subject, sources, prediction, seed, code)
        scored.append(found)
    progress(len(predictors), len(predictors), "")
    return scored


def evaluate_each(
    root: Path,
    subjects: Iterable[Subject],
    predictors: Sequence[str],
    done: Callable[[Subject], None] = lambda subject: None,
    **options: Any,
) -> tuple[list[Scored], list[TilearenaError]]:
    """`evaluate` on each of ``subjects`` under a progress bar; also returns why some of them could not be evaluated.

    ``done`` is called after each one that could.

    Raises:
        RecordingError, SpecError: none of them could; the first reason.
    """
    scored: list[Scored] = []
    refused: list[TilearenaError] = []
    for subject in subjects:
        try:
            with progress_bar(f"{subject.spec} {subject.dtype} {subject.protocol} {subject.split}") as progress:
                scored += evaluate(root, subject, predictors, progress=progress, **options)
        except (RecordingError, SpecError) as error:  # the other recordings may be sound
            refused.append(error)
        else:
            done(subject)
    if refused and not scored:
        raise refused[0]
    if any(one.isolated is False for one in scored):
        print(f"tilearena: {NOTICE}", file=sys.stderr)
    return scored, refused


def _judged(subject: Subject, sources: Sources, prediction: Prediction, seed: int, code: str | None) -> Scored:
    key = subject.key(prediction.name, prediction.version, sources.test.header.support)
    result = judge(
        sources,
        key,
        prediction.picks,
        prediction.constant_picks,
        predict_us=prediction.predict_us,
        reason=prediction.reason,
        seed=seed,
    )
    origin = sources.test.header.origin
    return Scored(result, prediction.picks, sources.fingerprints, seed, code, origin, prediction.isolated)


def _stored(root: Path, subject: Subject, sources: Sources, name: str, seed: int, code: str | None) -> Scored | None:
    """The result that was stored for this very code of the predictor, judged again."""
    key = subject.key(name, "any", sources.test.header.support)
    found = stored_picks(root, key, sources.fingerprints, seed, code)
    if found is None:
        return None
    result, picks = found
    judged = rescore(result, picks, sources)
    return Scored(judged, picks, sources.fingerprints, seed, code, sources.test.header.origin, result.isolated)
