"""Which problems train and which test: no shape (m, n, k) is ever in both.

Draws come from ``PCG64.random_raw``, the one numpy stream that is promised to stay the same between versions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tilearena.dataset import Ints, Table
from tilearena.errors import RecordingError, SpecError

Split = Literal["random", "models"]
SPLITS: tuple[Split, ...] = get_args(Split)
N_FOLDS = 5
NETWORKS = "networks"
MODELS_TRAIN_SPEC = "lowbit-random"
#: Bits of one extent in a shape code: extents are at most 2^20, so three of them fit in an int64.
_EXTENT_BITS = 21


@dataclass(frozen=True)
class Fold:
    """One fit: what the predictor learns from, and the rows of the tested table that it then ranks."""

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


def train_spec_for(split: str, spec: str) -> str:
    """Name of the spec whose recording trains when ``spec`` is tested.

    Raises:
        SpecError: the split is unknown or does not suit the spec.
    """
    if split == "random":
        return spec
    if split != "models":
        raise SpecError(f"no split named {split!r}; choose one of {', '.join(SPLITS)}")
    if spec != NETWORKS:
        raise SpecError(f"split 'models' tests the spec {NETWORKS!r}, not {spec!r}; use --split random")
    return MODELS_TRAIN_SPEC


def plan(split: str, spec: str, table: Table, train_table: Table | None = None, *, seed: int = 0) -> list[Fold]:
    """The fits that rank every problem of ``table`` once.

    Args:
        split: ``random`` or ``models``.
        spec: name of the tested spec.
        table: the tested problems.
        train_table: times of ``train_spec_for(split, spec)``; only ``models`` reads it.
        seed: of the assignment to folds; only ``random`` reads it.

    Raises:
        SpecError: the split does not suit the spec, or too few shapes.
        RecordingError: the training table is missing, is of another task, or has no shape of its own.
    """
    return list(_folds(split, train_spec_for(split, spec), table, train_table, seed))


def _folds(split: str, train_spec: str, table: Table, train_table: Table | None, seed: int) -> Iterator[Fold]:
    if split == "random":
        for train_rows, test_rows in random_folds(table.problems, seed=seed):
            yield Fold(table.take(train_rows), test_rows)
        return
    if train_table is None:
        raise RecordingError(f"split 'models' trains on {train_spec!r}, which is not recorded here; measure it first")
    if _identity(train_table) != _identity(table):
        raise RecordingError(
            f"the recording of {train_spec!r} has another op, dtype, protocol or space than the tested one; "
            "train on one that has the same"
        )
    train_rows, test_rows = models_split(train_table, table)
    if not len(train_rows):
        raise RecordingError(f"split 'models' leaves no shape of {train_spec!r} to train on; record more of it")
    yield Fold(train_table.take(train_rows), test_rows)


def _identity(table: Table) -> tuple[object, ...]:
    task = table.task
    return task.op, task.dtype, task.bit_op, task.protocol, task.templates
