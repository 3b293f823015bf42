"""The CSV of CUTLASS's ``cutlass_profiler`` (GEMM) -> kernels, problems and one mean time for each.

Its columns are those of ``PerformanceReport::print_csv_header_`` (tools/profiler/src/performance_report.cpp).
CUTLASS 2.x computes a column-major D as the transposed product, with its tile over (n, m): ``transposed_problem`` in
gemm_universal_adapter.h, ``to_underlying_arguments`` in device/gemm.h. Such a row is the problem (n, m, k) here.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import cast

from pydantic import ValidationError

from tilearena.errors import RecordingError
from tilearena.exchange.foreign_csv import Faults, ForeignCsv, MalformedRowError, Row, shown, whole_number
from tilearena.exchange.foreign_rows import Content, grid_rows, problem_of, require_size
from tilearena.records import K_ALIGNMENT, BitOp, Dtype, Problem, Status, Template, fingerprint
from tilearena.space import Space

#: Name of the space that the kernels of a file make up.
SPACE = "cutlass-profiler"
TILE = ("cta_m", "cta_n", "cta_k")
WARPS = ("warps_m", "warps_n")
INSTRUCTION = ("inst_m", "inst_n", "inst_k")
#: What these columns must hold; D = A x B, with C not read.
FIXED = {
    "Provider": "CUTLASS",
    "OperationKind": "gemm",
    "split_k_slices": "1",
    "op_class": "tensorop",
    "accum": "s32",
    "warps_k": "1",
}
#: As `FIXED`, where there is such a column: not every version of the profiler has it.
FIXED_IF_THERE = {"batch_count": "1", "split_k_mode": "serial", "alpha": "1", "beta": "0"}
COLUMNS = (
    *("Operation", "Disposition", "Status", "m", "n", "k", "A", "B", "C", "stages", "Runtime"),
    *(*FIXED, *TILE, *WARPS, *INSTRUCTION),
)
#: Names of CUTLASS 2.x kernels with s32 output (``procedural_name`` in cutlass_library/gemm_operation.py).
KERNEL = re.compile(
    r"cutlass_tensorop_i(\d{1,27})(xor|and)?gemm_(s8|s4|b1)"
    r"_(\d{1,9})x(\d{1,9})_(\d{1,9})x(\d{1,9})_tn_align(\d{1,9})",
    re.ASCII,
)
#: Milliseconds, as a C++ stream prints them.
RUNTIME = re.compile(r"\d+(\.\d*)?(e[+-]?\d{1,3})?", re.ASCII)
#: No launch takes an hour.
MAX_RUNTIME_MS = 3_600_000.0
#: How a row ended that has no time: by its Status, then by its Disposition (library/src/util.cu and
#: profiler/src/enumerated_types.cpp). A result that was not verified may be wrong, so its time says nothing.
STATUSES = {
    "misaligned_operand": Status.INFEASIBLE,
    "invalid_problem": Status.INFEASIBLE,
    "not_supported": Status.INFEASIBLE,
    "internal": Status.LAUNCH_FAILED,
    "invalid": Status.LAUNCH_FAILED,
}
DISPOSITIONS = {
    "failed": Status.LAUNCH_FAILED,
    "not_run": Status.LAUNCH_FAILED,
    "not_verified": Status.WRONG_RESULT,
    "invalid_problem": Status.INFEASIBLE,
    "not_supported": Status.INFEASIBLE,
    "incorrect": Status.WRONG_RESULT,
    "invalid": Status.LAUNCH_FAILED,
}
MISSING = "not in the file"


@dataclass(frozen=True, slots=True)
class Profiled:
    """One row: a kernel on a problem, and its mean time over some launches, or why there is none.

    ``elapsed_ns`` is 0 unless ``status`` is ok.
    """

    problem: Problem
    template: Template
    status: Status
    elapsed_ns: int
    reason: str


def profiled(row: Row) -> Profiled:
    """What one row says.

    Raises:
        MalformedRowError: it contradicts itself, or is no product of this kind.
    """
    expected = FIXED | {name: value for name, value in FIXED_IF_THERE.items() if name in row}
    for column, value in expected.items():
        if row[column] != value:
            raise MalformedRowError(f"{column} is {shown(row[column])}; only {value} can be imported")
    template = _template(row["Operation"], *(whole_number(row, c) for c in (*TILE, "stages", *WARPS, *INSTRUCTION)))
    layouts = {"A": (f"{template.dtype}:row",), "B": (f"{template.dtype}:column",), "C": ("s32:row", "s32:column")}
    if "D" in row:
        layouts["D"] = (row["C"],)
    for column, values in layouts.items():
        if row[column] not in values:
            raise MalformedRowError(f"{column} is {shown(row[column])}; only {' or '.join(values)} can be imported")
    m, n, k = (whole_number(row, axis) for axis in "mnk")
    if row["C"] == "s32:column":
        m, n = n, m
    return Profiled(problem_of(template.dtype, template.bit_op, m, n, k), template, *_outcome(row))


@lru_cache(maxsize=1 << 12)
def _template(
    operation: str, m: int, n: int, k: int, stages: int, warps_m: int, warps_n: int, i_m: int, i_n: int, i_k: int
) -> Template:
    named = KERNEL.fullmatch(operation)
    if named is None:
        raise MalformedRowError(
            f"Operation {shown(operation)} is no CUTLASS 2.x tensor-core kernel of s8, s4 or b1 (TN, s32 output)"
        )
    dtype = cast(Dtype, named[3])
    bit_op = cast(BitOp | None, named[2])
    tile = tuple(map(int, named.groups()[3:7]))
    if (dtype == "b1") != (bit_op is not None) or (named[1], *tile) != (f"{i_m}{i_n}{i_k}", m, n, k, stages):
        raise MalformedRowError(
            f"Operation {operation} contradicts the columns cta_m, cta_n, cta_k, stages, inst_m, inst_n and inst_k"
        )
    if int(named[8]) != K_ALIGNMENT[dtype]:
        raise MalformedRowError(f"Operation {operation} is not of alignment {K_ALIGNMENT[dtype]} (128 bits)")
    if not (warps_m and warps_n and m and n and k) or m % warps_m or n % warps_n:
        raise MalformedRowError(f"{warps_m} x {warps_n} warps do not divide a tile of {m} x {n} x {k}")
    warp = (m // warps_m, n // warps_n, k)
    if any(size == 0 or whole % size for whole, size in zip(warp, (i_m, i_n, i_k), strict=True)):
        raise MalformedRowError(f"an instruction of {i_m} x {i_n} x {i_k} does not divide a warp's tile of {warp}")
    try:
        return Template(
            dtype=dtype,
            bit_op=bit_op,
            label=operation,
            threadblock=(m, n, k),
            warp=warp,
            instruction=(i_m, i_n, i_k),
            stages=stages,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise MalformedRowError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _outcome(row: Row) -> tuple[Status, int, str]:
    """Status, time in ns, and reason."""
    status, disposition = row["Status"], row["Disposition"]
    if status in STATUSES:
        return STATUSES[status], 0, f"status {status}"
    if status != "success":
        raise MalformedRowError(f"Status is {shown(status)}; use one of success, {', '.join(STATUSES)}")
    if disposition in DISPOSITIONS:
        return DISPOSITIONS[disposition], 0, f"disposition {disposition}"
    if disposition != "passed":
        raise MalformedRowError(f"Disposition is {shown(disposition)}; use one of passed, {', '.join(DISPOSITIONS)}")
    text = row["Runtime"]
    elapsed_ns = round(min(float(text), 2 * MAX_RUNTIME_MS) * 1e6) if RUNTIME.fullmatch(text) else 0
    if not 1 <= elapsed_ns <= MAX_RUNTIME_MS * 1e6:
        raise MalformedRowError(f"Runtime is {shown(text)}, not a time of a launch in ms")
    return Status.OK, elapsed_ns, ""


class _Kernels:
    """What a file says about one data type."""

    def __init__(self, bit_op: BitOp | None) -> None:
        self.bit_op = bit_op
        self.problems: dict[Problem, int] = {}
        self.templates: dict[str, Template] = {}
        self._index: dict[str, int] = {}
        self._cells: dict[tuple[int, int], tuple[int, Profiled]] = {}
        self._has_time = False

    def add(self, line: int, found: Profiled) -> None:
        template, problem = found.template, found.problem
        if template.bit_op != self.bit_op:
            raise MalformedRowError(
                f"is b1 {template.bit_op}, the rows before it are b1 {self.bit_op}; import it from a file of its own"
            )
        known = self.templates.get(template.id, template)
        if known != template:
            raise MalformedRowError(f"{template.label} is the same template as {known.label}")
        place = self.problems.get(problem, len(self.problems)), self._index.get(template.id, len(self._index))
        if place in self._cells:
            first = self._cells[place][0]
            raise MalformedRowError(f"{template.label} on this problem is in line {first}, too; that one is taken")
        self.problems.setdefault(problem, place[0])
        self._index.setdefault(template.id, place[1])
        self.templates.setdefault(template.id, template)
        self._cells[place] = line, found
        self._has_time |= found.status is Status.OK

    def content(self, path: object, dtype: Dtype, space: Space) -> Content:
        problems, templates = tuple(self.problems), tuple(self.templates.values())
        require_size(path, len(problems), len(templates))
        if not self._has_time:
            raise RecordingError(
                f"{path}: no row of {dtype} has a verified time; run the profiler with verification on"
            )
        default = space.templates(dtype, self.bit_op)[space.default_index(dtype)].id
        if default not in self.templates:
            raise RecordingError(
                f"{path}: has no row of CUTLASS's default for {dtype}, {default}, to which speedups refer; profile "
                "that kernel, too"
            )
        places = product(range(len(problems)), range(len(templates)))
        found = [self._cells[place][1] if place in self._cells else None for place in places]
        return Content(
            dtype=dtype,
            bit_op=self.bit_op,
            space=SPACE,
            space_fingerprint=fingerprint([template.model_dump(mode="json") for template in templates]),
            problems=problems,
            templates=templates,
            default=self._index[default],
            rows=grid_rows(
                problems,
                len(templates),
                [f.status if f else Status.INFEASIBLE for f in found],
                [f.elapsed_ns if f else 0 for f in found],
                [f.reason if f else MISSING for f in found],
            ),
        )


def contents(table: ForeignCsv, space: Space, faults: Faults) -> list[Content]:
    """One recording's worth of each data type in the file; rows that cannot be taken go to ``faults``.

    Raises:
        RecordingError: a column is missing, or a data type has too many rows, no time, or no kernel that is the default
            of ``space``.
        SpecError: ``space`` does not serve a data type.
    """
    table.require(COLUMNS, (*FIXED_IF_THERE, "D"))
    kernels: dict[Dtype, _Kernels] = {}
    for line, row in table.rows(faults):
        try:
            found = profiled(row)
            kernels.setdefault(found.problem.dtype, _Kernels(found.problem.bit_op)).add(line, found)
        except MalformedRowError as error:
            faults.add(line, error)
    return [each.content(table.path, dtype, space) for dtype, each in kernels.items()]
