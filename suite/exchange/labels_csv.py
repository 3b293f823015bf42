"""A CSV of labels -> problems and the best template of each. No times are known, and none are made up.

Its header: device, sm_count, dtype, m, n, k, best. ``best`` is the id of a template or its label, such as large/3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilearena.errors import RecordingError
from tilearena.exchange.foreign_csv import Faults, ForeignCsv, MalformedRowError, Row, shown, whole_number
from tilearena.exchange.foreign_rows import Content, grid_rows, problem_of, require_size
from tilearena.records import BitOp, Device, Dtype, Problem, Status, Template, device_slug
from tilearena.space import Space

COLUMNS = ("device", "sm_count", "dtype", "m", "n", "k", "best")
#: The bit operation of b1, which the file does not tell: that of `tilearena.spec.Workload` where none is given.
BIT_OP: BitOp = "and"
#: Names that a sentence lists.
LISTED = 8


@dataclass(frozen=True, slots=True)
class Label:
    """One row; ``best`` is an index into the templates."""

    device: str
    problem: Problem
    best: int


class Names:
    """The templates of a space, by data type, id and label."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.templates: dict[Dtype, tuple[Template, ...]] = {
            dtype: space.templates(dtype, BIT_OP) for dtype in space.dtypes
        }
        self._index = {
            dtype: {name: i for i, t in enumerate(templates) for name in (t.id, t.label)}
            for dtype, templates in self.templates.items()
        }

    def dtype(self, cell: str) -> Dtype:
        """The data type in a cell.

        Raises:
            MalformedRowError: the space does not serve it.
        """
        if cell not in self._index:
            raise MalformedRowError(f"dtype is {shown(cell)}; use one of {', '.join(self._index)}")
        return cell

    def best(self, dtype: Dtype, cell: str) -> int:
        """The index of the template in a cell.

        Raises:
            MalformedRowError: it is none of the space.
        """
        if cell not in self._index[dtype]:
            labels = ", ".join(template.label for template in self.templates[dtype][:LISTED])
            raise MalformedRowError(
                f"best is {shown(cell)}, no template of the space {self._space.name!r} for {dtype} ({labels} ...)"
            )
        return self._index[dtype][cell]


def labelled(row: Row, names: Names) -> Label:
    """What one row says.

    Raises:
        MalformedRowError: a cell is not what its column holds.
    """
    dtype = names.dtype(row["dtype"])
    m, n, k = (whole_number(row, axis) for axis in "mnk")
    problem = problem_of(dtype, BIT_OP if dtype == "b1" else None, m, n, k)
    return Label(row["device"], problem, names.best(dtype, row["best"]))


def contents(table: ForeignCsv, space: Space, device: Device, faults: Faults) -> tuple[list[Content], int]:
    """One recording's worth of each data type that is labelled for ``device``, and how many rows are of other devices.

    A row is of the device if it has its number of SMs and bears its product's name or slug. Rows that cannot be taken
    go to ``faults``.

    Raises:
        RecordingError: a column is missing, no row is of the device, it cannot be told which are, or too many rows.
    """
    table.require(COLUMNS)
    names = Names(space)
    labels: list[tuple[int, Label]] = []
    counts: set[int] = set()
    n_others = 0
    for line, row in table.rows(faults):
        try:
            sm_count, label = whole_number(row, "sm_count"), labelled(row, names)
        except MalformedRowError as error:
            faults.add(line, error)
            continue
        if len(counts) <= LISTED:
            counts.add(sm_count)
        if sm_count == device.sm_count:
            labels.append((line, label))
        else:
            n_others += 1
    chosen = _of_device(table, labels, device, sorted(counts))
    return _by_dtype(table, chosen, space, names, faults), n_others + len(labels) - len(chosen)


def _of_device(
    table: ForeignCsv, labels: Sequence[tuple[int, Label]], device: Device, counts: Sequence[int]
) -> Sequence[tuple[int, Label]]:
    if not labels:
        others = f"; its rows have {', '.join(map(str, counts[:LISTED]))}" if counts else ""
        raise RecordingError(f"{table.path}: no row has the {device.sm_count} SMs of {device.slug}{others}")
    found = {label.device for _, label in labels}
    own = {name for name in found if name == device.product or device_slug(name) == device.slug}
    if not own:
        names = ", ".join(shown(name) for name in sorted(found)[:LISTED])
        raise RecordingError(
            f"{table.path}: its rows with {device.sm_count} SMs are of {names}, none of which is called "
            f"{device.product!r}; if one is that device, give it this name in the column device"
        )
    return [(line, label) for line, label in labels if label.device in own]


def _by_dtype(
    table: ForeignCsv, labels: Sequence[tuple[int, Label]], space: Space, names: Names, faults: Faults
) -> list[Content]:
    first: dict[Problem, tuple[int, int]] = {}
    for line, label in labels:
        if label.problem in first:
            faults.add(line, f"this problem is in line {first[label.problem][0]}, too; that one is taken")
        else:
            first[label.problem] = line, label.best
    found = []
    for dtype in dict.fromkeys(problem.dtype for problem in first):
        templates = names.templates[dtype]
        best = {problem: index for problem, (_, index) in first.items() if problem.dtype == dtype}
        require_size(table.path, len(best), len(templates))
        statuses = [Status.BEST if i == b else Status.NOT_BEST for b in best.values() for i in range(len(templates))]
        nothing = len(statuses)
        found.append(
            Content(
                dtype=dtype,
                bit_op=BIT_OP if dtype == "b1" else None,
                space=space.name,
                space_fingerprint=space.fingerprint,
                problems=tuple(best),
                templates=templates,
                default=space.default_index(dtype),
                rows=grid_rows(tuple(best), len(templates), statuses, [0] * nothing, [""] * nothing),
            )
        )
    return found
