"""Which templates can run which problems, by shape alone, for many problems at a time."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilearena.picker import terms
from tilearena.records import Template
from tilearena.table import Floats, Ints


def can_run(templates: Sequence[Template], problems: Ints) -> npt.NDArray[np.bool_]:
    """Whether each template can run each of ``problems`` [P, 3], bool [P, T], on a device that has what it needs."""
    extents = dict(zip("mnk", problems.T, strict=True))
    able = np.ones((len(problems), len(templates)), dtype=np.bool_)
    for column, template in enumerate(templates):
        for condition in terms.conditions(template):
            able[:, column] &= eval(condition, {}, extents)
    return able


def unable_last(costs: Floats, problems: Ints, templates: Sequence[Template]) -> Floats:
    """The same costs [P, T], but what cannot run a problem of that shape comes after all that can."""
    return np.where(can_run(templates, problems), costs, costs.max(axis=1, keepdims=True, initial=0.0) + 1.0)
