"""Checks an installed predictor against the rules of the contract, each rule in a process and a folder of its own."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilearena import out_of_reach
from tilearena.child import run_child, scratch_folder
from tilearena.conformance import RULES, Rule
from tilearena.conformance_child import Outcome, Question
from tilearena.plugins import find
from tilearena.predict import TIME_LIMIT_S
from tilearena.predict_child import Limits
from tilearena.splits import N_FOLDS

#: Seconds for a rule: a fifth of what a score allows for its five folds together.
RULE_TIME_LIMIT_S = TIME_LIMIT_S / N_FOLDS
#: They set the order of sets of strings, so the two processes of a rule that is checked twice differ in it.
HASH_SEEDS = ("1", "2")
MAX_ANSWER_BYTES = 1 << 16
LOAD = RULES[0]
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Checked:
    """One rule, how it ended and why, and the seconds that its processes took."""

    rule: Rule
    status: Literal["pass", "fail", "declined", "not run"]
    reason: str
    wall_time_s: float


def run_rules(name: str, *, time_limit_s: float, memory_limit_bytes: int, report: Report) -> Iterator[Checked]:
    """Check every rule within the limits; stop after one that took too long, or if ``name`` cannot be loaded.

    Raises:
        PredictorError: no predictor of that name is installed.
    """
    find(name)
    limits = Limits(memory_bytes=memory_limit_bytes, out_of_reach=out_of_reach.places())
    stopped_by = ""
    for done, rule in enumerate(RULES):
        report(done, len(RULES), rule.name)
        if stopped_by:
            yield Checked(rule, "not run", f"since {stopped_by!r} failed", 0.0)
            continue
        start_s = time.monotonic()
        outcome = _check(name, rule, time_limit_s, limits)
        wall_time_s = time.monotonic() - start_s
        if outcome.status == "fail" and (rule is LOAD or wall_time_s >= time_limit_s):
            stopped_by = rule.name
        yield Checked(rule, outcome.status, outcome.reason, wall_time_s)


def _check(name: str, rule: Rule, time_limit_s: float, limits: Limits) -> Outcome:
    """The outcome of the rule's process, or of both, which share the time."""
    deadline_s = time.monotonic() + time_limit_s
    outcomes = [_ask(name, rule, seed, deadline_s, time_limit_s, limits) for seed in HASH_SEEDS[: 1 + rule.twice]]
    worst = next((outcome for outcome in outcomes if outcome.status != "pass"), outcomes[0])
    if worst.status == "pass" and len({outcome.digest for outcome in outcomes}) > 1:
        reason = f"predictor {name!r} answered differently in two processes; sort what comes of a set or a hash"
        return Outcome(status="fail", reason=reason)
    return worst


def _ask(name: str, rule: Rule, hash_seed: str, deadline_s: float, time_limit_s: float, limits: Limits) -> Outcome:
    with scratch_folder() as folder:
        (folder / "question.json").write_text(Question(name=name, rule=rule.name, limits=limits).model_dump_json())
        problem = run_child(
            "tilearena.conformance_child",
            folder,
            name,
            deadline_s=deadline_s,
            time_limit_s=time_limit_s,
            limits=limits,
            PYTHONHASHSEED=hash_seed,
        )
        return Outcome(status="fail", reason=problem) if problem else _read(name, folder / "answer.json")


def _read(name: str, answer: Path) -> Outcome:
    """The child's answer; the plugin ran in the process that wrote it."""
    try:
        if answer.is_symlink() or answer.stat().st_size > MAX_ANSWER_BYTES:
            raise ValueError("it is a link, or too large")
        return Outcome.model_validate_json(answer.read_text())
    except (OSError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        return Outcome(status="fail", reason=f"predictor {name!r} left an unreadable answer ({first_line})")
