"""The rules of the predictor contract, each a function over made-up tables, for ours and a third party's alike.

``conformance`` runs them in the caller's process, so that a debugger and tracebacks work; ``tilearena predictors test``
runs each in a process of its own, see `tilearena.conformance_run`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tilearena.errors import PredictorError
from tilearena.plugins import PRIVILEGED, Declined, load
from tilearena.predict_child import checked
from tilearena.records import DTYPES, Dtype
from tilearena.synthetic import extreme_problems, failing_table, synthetic_table, synthetic_task, wide_task
from tilearena.table import Floats, Ints, Table, Task

__all__ = ["RULES", "Rule", "check_rule", "conformance", "synthetic_table", "synthetic_task"]

N_TRAIN = 150
#: A problem's costs may depend on the batch as much as 32-bit sums in another order do.
RTOL, ATOL = 1e-3, 1e-5
#: A fold of lowbit-random: 1,600 problems to learn from and 400 to rank.
FOLD_PROBLEMS, FOLD_TRAIN = 2000, 1600
#: A fold over almost 300 templates, as many as a space may well have.
WIDE_PROBLEMS, WIDE_TRAIN, WIDE_STAGES = 500, 400, tuple(range(2, 13))


def _costs(name: str, train: Table, problems: Ints, task: Task | None = None) -> Floats:
    """Costs [P, T] of a fresh instance, fitted on ``train``; both are copied, so one rule at a time is broken."""
    own = replace(train, problems=train.problems.copy(), time_ns=train.time_ns.copy())
    return _answer(name, own, problems.copy(), task)


def _answer(name: str, train: Table, problems: Ints, task: Task | None = None) -> Floats:
    task, predictor = task or train.task, load(name)
    predictor.fit(train, 0)
    return checked(name, predictor.costs(problems, task), (len(problems), len(task.templates))).copy()


def _finite(name: str, costs: Floats, where: str) -> Floats:
    if not np.isfinite(costs).all():
        raise PredictorError(f"predictor {name!r} answered costs that are not finite ({where})")
    return costs


def _halves(name: str, table: Table, n_train: int = N_TRAIN) -> tuple[Table, Ints]:
    """What to learn from, and the problems to rank; the oracle knows those too, as in a score."""
    n_known = len(table.problems) if name == PRIVILEGED else n_train
    return table.take(np.arange(n_known)), table.problems[n_train:].copy()


def _loads(name: str, dtype: Dtype) -> None:
    if getattr(load(name), "privileged", False) and name != PRIVILEGED:
        raise PredictorError(f"predictor {name!r} asks for the measured times, which only the oracle gets")


def _ranks(name: str, dtype: Dtype) -> Floats:
    return _finite(name, _costs(name, *_halves(name, synthetic_table(dtype=dtype))), dtype)


def _seeded(name: str, dtype: Dtype) -> Floats:
    first, again = (_costs(name, *_halves(name, synthetic_table(dtype=dtype))) for _ in range(2))
    if not np.array_equal(first, again, equal_nan=True):
        raise PredictorError(f"predictor {name!r} answered differently under the same seed; draw from the seed alone")
    return first


def _changes_nothing(name: str, dtype: Dtype) -> None:
    train, tested = _halves(name, synthetic_table(dtype=dtype))
    before = [array.copy() for array in (train.problems, train.time_ns, tested)]
    _answer(name, train, tested)
    if not all(map(np.array_equal, before, (train.problems, train.time_ns, tested))):
        raise PredictorError(f"predictor {name!r} changed the arrays that it was given; work on copies")
    for array in (train.problems, train.time_ns, tested):
        array.flags.writeable = False
    _answer(name, train, tested)


def _takes_each_problem_by_itself(name: str, dtype: Dtype) -> None:
    train, tested = _halves(name, synthetic_table(dtype=dtype))
    together = _costs(name, train, tested)
    alone, reversed_ = _costs(name, train, tested[:1]), _costs(name, train, tested[::-1])
    if not _close(alone, together[:1]) or not _close(reversed_[::-1], together):
        raise PredictorError(f"predictor {name!r} costs a problem differently when other problems are asked with it")


def _close(costs: Floats, others: Floats) -> bool:
    return bool(np.allclose(costs, others, rtol=RTOL, atol=ATOL, equal_nan=True))


def _serves_any_shape(name: str, dtype: Dtype) -> None:
    table = synthetic_table(dtype=dtype)
    extremes = extreme_problems(dtype)
    if name == PRIVILEGED:
        raise Declined("the oracle knows no problem that was not measured")
    costs = _costs(name, table, extremes)
    for problem, row in zip(extremes.tolist(), costs, strict=True):
        _finite(name, row, f"{dtype}, problem {problem}")


def _serves_other_templates(name: str, dtype: Dtype) -> None:
    train, tested = _halves(name, synthetic_table(dtype=dtype))
    task = train.task
    _finite(name, _costs(name, train, tested, wide_task(dtype)), f"{dtype}, templates that were not trained on")
    turned = replace(task, templates=task.templates[::-1], default=len(task.templates) - 1 - task.default)
    if not _close(_costs(name, train, tested, turned)[:, ::-1], _costs(name, train, tested)):
        raise PredictorError(
            f"predictor {name!r} costs a template by its place: in another order it answers otherwise ({dtype})"
        )


def _serves_other_devices(name: str, dtype: Dtype) -> None:
    train, tested = _halves(name, synthetic_table(dtype=dtype))
    half, most = (_with_sms(train.task, sm_count) for sm_count in (50, 80))
    where = f"{dtype}, a device that was not trained on"
    _finite(name, _costs(name, train, tested, half), where)
    several = replace(train, others=(synthetic_table(seed=1, task=half),))
    _finite(name, _costs(name, several, tested, most), f"{where}, after tables of two others")


def _with_sms(task: Task, sm_count: int) -> Task:
    slug = f"{task.device.slug}-sm{sm_count}"
    return replace(task, device=task.device.model_copy(update={"slug": slug, "sm_count": sm_count}))


def _bears_failures(name: str, dtype: Dtype) -> None:
    costs = _costs(name, *_halves(name, failing_table(dtype)))
    _finite(name, costs, f"{dtype}, where templates failed in training")


def _loads_no_pickle(name: str, dtype: Dtype) -> None:
    with _pickles() as found:
        try:
            _costs(name, *_halves(name, synthetic_table(dtype=dtype)))
        except Exception:  # the refusal, perhaps: the pickle is what there is to say
            if not found:
                raise
    if found:
        raise PredictorError(f"predictor {name!r} loads a pickle (of {found[0]}), which may run anything")


@contextmanager
def _pickles() -> Iterator[list[str]]:
    """Refuses pickles, and yields the names that they asked for.

    The hook sees every object that a pickle names, however it is loaded (pickle, joblib, NumPy, PyTorch).
    """
    found, watching = [], True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "pickle.find_class":
            found.append(".".join(map(str, arguments)))
            raise RuntimeError("a predictor may load no pickle")

    sys.addaudithook(hook)
    try:
        yield found
    finally:
        watching = False  # a hook stays for good


def _is_quick(name: str, dtype: Dtype) -> None:
    _costs(name, *_halves(name, synthetic_table(FOLD_PROBLEMS, dtype=dtype), FOLD_TRAIN))


def _is_small(name: str, dtype: Dtype) -> None:
    table = synthetic_table(WIDE_PROBLEMS, task=wide_task(dtype, WIDE_STAGES))
    _costs(name, *_halves(name, table, WIDE_TRAIN))


@dataclass(frozen=True)
class Rule:
    """One rule: what it asks in words, and the check (name, dtype) -> costs, which two processes must agree on.

    A ``heavy`` one is checked on the first dtype that is served, not on all.
    """

    name: str
    says: str
    check: Callable[[str, Dtype], Floats | None]
    heavy: bool = False
    twice: bool = False


RULES = (
    Rule("load", "it can be loaded; its name and version are in order", _loads, heavy=True),
    Rule("costs", "costs are finite numbers, one for each problem and template", _ranks),
    Rule("seed", "the same seed gives the same costs, in another process too", _seeded, twice=True),
    Rule("arrays", "the arrays that it gets stay as they are, and may be read-only", _changes_nothing),
    Rule("alone", "costs of a problem do not depend on the problems asked with it", _takes_each_problem_by_itself),
    Rule("shapes", "unseen shapes: M = 1, ragged, up to 2^20 each way", _serves_any_shape),
    Rule("templates", "unseen templates: a wider space, another generator, another order", _serves_other_templates),
    Rule("devices", "an unseen device, after one table and after those of two devices", _serves_other_devices),
    Rule("failures", "failed templates and problems in the training part", _bears_failures),
    Rule("pickle", "no pickle is loaded", _loads_no_pickle),
    Rule("time", "1,600 problems are learnt and 400 ranked within the time limit", _is_quick, heavy=True),
    Rule("memory", "400 problems of almost 300 templates are learnt within the memory limit", _is_small, heavy=True),
)


def check_rule(name: str, rule: Rule) -> tuple[list[Floats], str]:
    """Check one rule in this process: the costs that it came to, and why some dtypes were declined.

    Raises:
        Declined: it declined every dtype.
        PredictorError: it breaks the rule, in one sentence; whatever else the predictor raised passes.
    """
    costs: list[Floats] = []
    declined: dict[str, str] = {}
    for dtype in DTYPES:
        try:
            answer = rule.check(name, dtype)
        except Declined as reason:
            if not str(reason):
                raise PredictorError(f"predictor {name!r} declined {dtype} without a reason") from None
            declined[dtype] = str(reason)
            continue
        if answer is not None:
            costs.append(answer)
        if rule.heavy:
            break
    note = "; ".join(f"{dtype}: {reason}" for dtype, reason in declined.items())
    if len(declined) == len(DTYPES):
        same = set(declined.values())
        raise Declined(same.pop() if len(same) == 1 else note)
    return costs, note


def conformance(name: str) -> None:
    """Check the installed predictor ``name`` against every rule but the heavy ones; declining is allowed.

    Raises:
        PredictorError: the first rule of the contract that it breaks, in one sentence.
    """
    load(name)
    for rule in RULES:
        if not rule.heavy:
            try:
                check_rule(name, rule)
            except Declined:
                continue
