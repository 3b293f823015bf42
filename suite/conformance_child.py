"""The other side of ``tilearena.conformance_run``: one process that checks one rule and writes down the outcome."""

import hashlib
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel

from tilearena.conformance import RULES, Rule, check_rule
from tilearena.errors import TilearenaError, one_line
from tilearena.plugins import Declined
from tilearena.predict_child import REASON_LENGTH, Limits, describe, leave, restrict


class Question(BaseModel):
    """Which rule to check of which predictor, under which limits."""

    name: str
    rule: str
    limits: Limits


class Outcome(BaseModel):
    """How a rule ended; ``digest`` is of the costs that two processes must agree on."""

    status: Literal["pass", "fail", "declined"]
    reason: Annotated[str, AfterValidator(lambda reason: one_line(reason)[:REASON_LENGTH])] = ""
    digest: str = ""


def outcome_of(name: str, rule: Rule, limits: Limits, folder: Path) -> Outcome:
    """Check one rule in this process, from now on held to ``limits`` and ``folder``; a failure becomes a sentence."""
    try:
        restrict(limits, folder)
        costs, note = check_rule(name, rule)
    except Declined as declined:
        return Outcome(status="declined", reason=str(declined))
    except TilearenaError as error:
        return Outcome(status="fail", reason=str(error))
    except MemoryError as error:
        reason = f"predictor {name!r} needed more memory than {limits.memory}: {describe(error)}"
        return Outcome(status="fail", reason=reason)
    except BaseException as error:  # a plugin may even raise SystemExit
        return Outcome(status="fail", reason=f"predictor {name!r} raised {describe(error)}")
    digest = hashlib.sha256(b"".join(c.tobytes() for c in costs)).hexdigest()
    return Outcome(status="pass", reason=f"declined {note}" if note else "", digest=digest)


def main(folder: Path) -> None:
    """Answer the question of a folder."""
    question = Question.model_validate_json((folder / "question.json").read_text())
    (rule,) = (rule for rule in RULES if rule.name == question.rule)
    leave(folder, outcome_of(question.name, rule, question.limits, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
