"""The predictor contract and the plugin host: entry points only, and ours come through the same door."""

from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.errors import PredictorError

GROUPS = ("tilearena.predictors", "tilearena.baselines")


class Declined(Exception):  # noqa: N818 - it is an answer, not an error
    """Raise it from ``fit`` or ``costs`` to say "not me": the reason is shown, the problems count as failed."""


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
        PredictorError: two plugins claim one name.
    """
    found: dict[str, EntryPoint] = {}
    for group in GROUPS:
        for point in entry_points(group=group):
            if point.name in found and found[point.name].value != point.value:
                raise PredictorError(
                    f"two plugins are named {point.name!r} ({found[point.name].value} and {point.value}); uninstall one"
                )
            found[point.name] = point
    return found


def load(name: str) -> Predictor:
    """A fresh instance of the predictor ``name``.

    Raises:
        PredictorError: unknown, not importable (e.g. an extra is missing), or not a Predictor.
    """
    points = discover()
    if name not in points:
        raise PredictorError(f"no predictor named {name!r}; installed: {', '.join(sorted(points))}")
    try:
        predictor = points[name].load()()
    except ImportError as error:
        raise PredictorError(f"predictor {name!r} cannot be imported: {error}; install the extra it needs") from error
    except Exception as error:
        raise PredictorError(f"predictor {name!r} cannot be created: {error!r}") from error
    if not isinstance(predictor, Predictor):
        raise PredictorError(f"predictor {name!r} lacks name, version, fit or costs")
    return predictor
