"""The predictor contract and the plugin host: entry points only, and ours come through the same door."""

import re
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Protocol, runtime_checkable

from tilearena.errors import PredictorError, said
from tilearena.figures import measured_tables
from tilearena.records import SLUG
from tilearena.table import Floats, Ints, Table, Task

BASELINES = "tilearena.baselines"
GROUPS = ("tilearena.predictors", BASELINES)
#: The baseline that ranks by the very times it is judged by. No other is given them, nor can it be called so.
PRIVILEGED = "oracle"
#: The predictor that speedups are against, and so a baseline too.
DEFAULT = "default"
#: With fewer, nothing can be learnt.
MIN_PROBLEMS = 10


class Declined(Exception):  # noqa: N818 - it is an answer, not an error
    """Raise it from ``fit`` or ``costs`` to say "not me": the reason is shown, the problems count as failed."""


def require_same_templates(name: str, train: Task, task: Task) -> None:
    """For a predictor that knows only the templates that it was trained on, by their places.

    Raises:
        Declined: ``task`` lists other templates, or the same in another order.
    """
    if task.templates != train.templates:
        raise Declined(f"{name} ranks only the templates that it was trained on, in the order of their space")


def require_measured(name: str, train: Table) -> list[Table]:
    """The measured problems of each device that ``train`` has, for a predictor that learns from times.

    Raises:
        Declined: they are fewer than ``MIN_PROBLEMS``.
    """
    tables = measured_tables(train)
    if (n_problems := sum(len(table.problems) for table in tables)) < MIN_PROBLEMS:
        raise Declined(f"{name} needs at least {MIN_PROBLEMS} measured training problems and got {n_problems}")
    return tables


@runtime_checkable
class Predictor(Protocol):
    """Ranks templates. One instance serves one fit; ``name`` and ``version`` identify it on the leaderboard."""

    name: str
    version: str

    def fit(self, train: Table, seed: int) -> None:
        """Learn from measured problems. ``train.time_ns`` is float64 [P, T], inf where a template failed.

        Raises:
            Declined: with a reason, if this predictor does not serve ``train.task``.
        """

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Cost of each template on each problem, lower is better.

        Args:
            problems: int64 [P, 3], the columns m, n, k.
            task: the templates (T of them, in space order), dtype, device and protocol.

        Returns:
            float64 [P, T], finite; equal costs rank in space order.
        """


def discover() -> dict[str, EntryPoint]:
    """Entry point of every installed predictor and baseline by name, built-ins first within each group.

    Raises:
        PredictorError: two plugins claim one name, or an entry point is malformed.
    """
    found: dict[str, EntryPoint] = {}
    for group in GROUPS:
        for point in _entry_points(group):
            if not re.fullmatch(SLUG, point.name) or not point.pattern.match(point.value):
                raise PredictorError(
                    f"the plugin {point.name!r} = {point.value!r} is no name of up to 64 letters, digits, '.', '_' and "
                    "'-' for a module:Class; uninstall or correct it"
                )
            if point.name in found and found[point.name].value != point.value:
                raise PredictorError(
                    f"two plugins are named {point.name!r} ({found[point.name].value} and {point.value}); uninstall one"
                )
            found[point.name] = point
    return found


def _entry_points(group: str) -> EntryPoints:
    try:
        return entry_points(group=group)
    except (OSError, ValueError) as error:  # of whichever package it is, all the others cannot be found either
        raise PredictorError(
            f"an installed package has entry points that cannot be read: {error}; uninstall it"
        ) from None


def baselines() -> frozenset[str]:
    """Names of what anything must beat: the installed baselines and the default template."""
    return frozenset(name for name, point in discover().items() if point.group == BASELINES) | {DEFAULT}


def find(name: str) -> EntryPoint:
    """The entry point of the predictor ``name``.

    Raises:
        PredictorError: not installed.
    """
    points = discover()
    if name not in points:
        raise PredictorError(f"no predictor named {name[:80]!r}; installed: {', '.join(sorted(points))}")
    return points[name]


def load(name: str) -> Predictor:
    """A fresh instance of the predictor ``name``.

    Raises:
        PredictorError: unknown, not importable (e.g. an extra is missing), not a Predictor, or one that calls itself
            otherwise or has no version.
    """
    point = find(name)
    try:
        predictor: Predictor = point.load()()
        complete = isinstance(predictor, Predictor)
        own_name, version = (predictor.name, predictor.version) if complete else ("", "")
    except ImportError as error:
        raise PredictorError(
            f"predictor {name!r} cannot be imported: {said(error)}; install the extra it needs"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may even raise SystemExit
        raise PredictorError(f"predictor {name!r} cannot be created: {type(error).__name__}: {said(error)}") from error
    if not complete:
        raise PredictorError(f"predictor {name!r} lacks name, version, fit or costs")
    if type(own_name) is not str or own_name != name:
        raise PredictorError(f"predictor {name!r} calls itself {_shown(own_name)}; entry point and name must agree")
    if type(version) is not str or not re.fullmatch(SLUG, version):
        raise PredictorError(
            f"predictor {name!r} has version {_shown(version)}; it must be a string of 1 to 64 letters, digits, "
            "'.', '_' and '-'"
        )
    return predictor


def _shown(value: object) -> str:
    """A plugin's value: only of what is no class of its own the repr is harmless."""
    return repr(value) if type(value) in (str, int, float, type(None)) else f"an object of {type(value).__name__}"
