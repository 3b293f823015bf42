"""Which problems train and which test: no shape (m, n, k) is ever in both.

Draws come from ``PCG64.random_raw``, the one numpy stream that is promised to stay the same between versions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from tilearena.errors import RecordingError, SpecError
from tilearena.final import LOCKED_SPEC, is_final
from tilearena.table import Ints, Table

Split = Literal["random", "models", "final", "extrapolate", "device"]
SPLITS: tuple[Split, ...] = get_args(Split)
N_FOLDS = 5
NETWORKS = "networks"
MODELS_TRAIN_SPEC = "lowbit-random"
#: What ``models`` may train on.
MODELS_TRAIN_SPECS = (MODELS_TRAIN_SPEC, LOCKED_SPEC)
#: ``extrapolate`` trains on problems of fewer multiply-adds and tests the others.
LARGE_MACS = 1 << 30
#: Bits of one extent in a shape code: extents are at most 2^20, so three of them fit in an int64.
_EXTENT_BITS = 21


@dataclass(frozen=True)
class Fold:
    """One fit: what the predictor learns from, and the rows of the tested recording's table that it then ranks."""

    train: Table
    test_rows: Ints


def shape_codes(problems: Ints) -> Ints:
    """One integer per row of ``problems`` [P, E], E <= 3 extents: equal codes [P] mean equal shapes."""
    codes = np.zeros(len(problems), dtype=np.int64)
    for extents in problems.T:
        codes = (codes << _EXTENT_BITS) | extents
    return codes


def groups_for(spec: str, problems: Ints) -> Ints:
    """Labels [P] of the groups that the bootstrap draws whole: (N, K) pairs in ``networks``, shapes elsewhere.

    The token counts of one layer are not independent problems.
    """
    return shape_codes(problems[:, 1:] if spec == NETWORKS else problems)


def random_folds(problems: Ints, n_folds: int = N_FOLDS, seed: int = 0) -> list[tuple[Ints, Ints]]:
    """(train rows, test rows) of each fold; every problem is tested exactly once.

    Folds hold equal numbers of distinct shapes (to within one) and do not depend on the order of ``problems`` [P, 3].

    Raises:
        SpecError: there are fewer distinct shapes than folds.
    """
    shapes, shape = np.unique(shape_codes(problems), return_inverse=True)
    if len(shapes) < n_folds:
        raise SpecError(f"split 'random' needs at least {n_folds} distinct shapes and got {len(shapes)}; measure more")
    shuffled = np.argsort(np.random.PCG64(seed).random_raw(len(shapes)), kind="stable")
    fold_of_shape = np.empty(len(shapes), dtype=np.int64)
    fold_of_shape[shuffled] = np.arange(len(shapes)) % n_folds
    fold = fold_of_shape[shape]
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(n_folds)]


def models_split(train: Table, test: Table) -> tuple[Ints, Ints]:
    """(rows of ``train``, rows of ``test``): all of ``test``, and of ``train`` what has no shape in common with it."""
    shared = np.isin(shape_codes(train.problems), shape_codes(test.problems))
    return np.flatnonzero(~shared), np.arange(len(test.problems))


def selected(split: str, spec: str, problems: Ints) -> Ints:
    """Rows of ``problems`` [P, 3] of the recording of ``spec`` that ``split`` tests; the others enter no figure."""
    final = is_final(problems) if spec == LOCKED_SPEC else np.zeros(len(problems), dtype=np.bool_)
    if split == "final":
        return np.flatnonzero(final)
    tested = ~final
    if split == "extrapolate":
        tested &= problems.prod(axis=1) >= LARGE_MACS
    return np.flatnonzero(tested)


def train_spec_for(split: str, spec: str, train_spec: str | None = None) -> str:
    """Name of the spec whose recording trains when ``spec`` is tested; ``train_spec`` is a wish that ``models`` has.

    Raises:
        SpecError: the split is unknown or does not suit the specs.
    """
    if split not in SPLITS:
        raise SpecError(f"no split named {split!r}; choose one of {', '.join(SPLITS)}")
    if split == "models":
        if spec != NETWORKS:
            raise SpecError(f"split 'models' tests the spec {NETWORKS!r}, not {spec!r}; use --split random")
        if train_spec not in (None, *MODELS_TRAIN_SPECS):
            raise SpecError(f"split 'models' trains on {' or '.join(MODELS_TRAIN_SPECS)}, not on {train_spec!r}")
        return train_spec or MODELS_TRAIN_SPEC
    if split == "final" and spec != LOCKED_SPEC:
        raise SpecError(f"split 'final' tests the spec {LOCKED_SPEC!r}, which alone has a locked part, not {spec!r}")
    return spec


def plan(
    split: str,
    spec: str,
    table: Table,
    train_table: Table | None = None,
    *,
    train_spec: str | None = None,
    seed: int = 0,
) -> list[Fold]:
    """The fits that rank every problem of ``table`` that is `selected`, once; none trains on a locked problem.

    Args:
        split: one of `SPLITS`.
        spec: name of the tested spec.
        table: the whole recording of ``spec``; its problems that are not selected are in no fold's ``test_rows``.
        train_table: for ``models`` the recording of ``train_spec``; for ``device`` that of the first other device, with
            the further ones in its ``others``. No other split reads it.
        train_spec: as in `train_spec_for`.
        seed: of the assignment to folds; only ``random`` and ``device`` read it.

    Raises:
        SpecError: the split does not suit the specs, or too few shapes.
        RecordingError: a training table is missing or of another task, or a part of the split is empty.
    """
    train_spec = train_spec_for(split, spec, train_spec)
    folds = list(_folds(split, spec, train_spec, table, train_table, seed))
    for fold in folds:
        if not len(fold.test_rows) or not all(len(part.problems) for part in fold.train.tables):
            part = "test" if not len(fold.test_rows) else "train on"
            raise RecordingError(f"split {split!r} leaves no shape of {train_spec!r} to {part}; record more of it")
    return folds


def _folds(
    split: str, spec: str, train_spec: str, table: Table, train_table: Table | None, seed: int
) -> Iterator[Fold]:
    rows = selected(split, spec, table.problems)
    if split == "random":
        for train, test in random_folds(table.problems[rows], seed=seed):
            yield Fold(table.take(rows[train]), rows[test])
    elif split == "final":
        yield Fold(_unlocked(table, spec), rows)
    elif split == "extrapolate":
        open_ = _unlocked(table, spec)
        yield Fold(open_.take(open_.problems.prod(axis=1) < LARGE_MACS), rows)
    elif split == "models":
        open_ = _unlocked(_required(split, train_spec, table, train_table), train_spec)
        yield Fold(open_.take(models_split(open_, table)[0]), rows)
    else:
        others = [_unlocked(part, spec) for part in _required(split, train_spec, table, train_table).tables]
        for _, test in random_folds(table.problems[rows], seed=seed):
            yield Fold(_without(others, table.problems[rows[test]]), rows[test])


def _unlocked(table: Table, spec: str) -> Table:
    """What may train of the recording of ``spec``."""
    return replace(table.take(~is_final(table.problems)), others=()) if spec == LOCKED_SPEC else table


def _without(tables: list[Table], problems: Ints) -> Table:
    """One training part of several devices, without the shapes of ``problems`` [P, 3]."""
    codes = shape_codes(problems)
    first, *others = (part.take(~np.isin(shape_codes(part.problems), codes)) for part in tables)
    return replace(first, others=tuple(others))


def _required(split: str, train_spec: str, table: Table, train_table: Table | None) -> Table:
    """The training table, with all its ``others`` of the tested task but for the device."""
    if train_table is None:
        what = "of another device " if split == "device" else ""
        raise RecordingError(
            f"split {split!r} trains on a recording {what}of {train_spec!r}, and there is none; measure it first"
        )
    if any(_identity(part) != _identity(table) for part in train_table.tables):
        raise RecordingError(
            f"the recording of {train_spec!r} has another op, dtype, protocol or space than the tested one; "
            "train on one that has the same"
        )
    return train_table


def _identity(table: Table) -> tuple[object, ...]:
    task = table.task
    return task.op, task.dtype, task.bit_op, task.protocol, task.templates
