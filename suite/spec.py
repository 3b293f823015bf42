"""YAML -> Workload (which problems are measured and how) or Space (which templates compete)."""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from tilearena.draw import MAX_PROBLEMS, Limits
from tilearena.errors import SpecError
from tilearena.records import (
    K_ALIGNMENT,
    N_ALIGNMENT,
    BitOp,
    Dtype,
    Op,
    Problem,
    Protocol,
    ProtocolName,
    fingerprint,
)
from tilearena.sources import Source
from tilearena.space import Space
from tilearena.yaml_lines import Loc, LocatedError, YamlRecord, load

Rounds = dict[Dtype, Annotated[int, Field(ge=1, le=64)]]

#: Fresh samples of a contender. Cold ones are of one launch each, so they scatter more. s4 takes fewer: where it is
#: emulated a launch takes ten times as long.
DEFAULT_ROUNDS: dict[ProtocolName, Rounds] = {
    "cold": {"s8": 16, "s4": 3, "b1": 16},
    "hot": {"s8": 6, "s4": 3, "b1": 6},
}
#: Samples of the default template, its control and the vendor's kernels where they are no contenders.
REFERENCE_ROUNDS: dict[ProtocolName, int] = {"cold": 16, "hot": 3}
#: Of the screen, see `tilearena.race`; docs/measuring.md has what it would miss.
SCREEN_ROUNDS: dict[ProtocolName, Rounds] = {
    "cold": {"s8": 3, "s4": 1, "b1": 3},
    "hot": {"s8": 2, "s4": 1, "b1": 2},
}
CONTENDER_MARGIN: dict[ProtocolName, float] = {"cold": 0.10, "hot": 0.05}


class Workload(YamlRecord):
    """A named set of problems for some dtypes, and how often each is timed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="Name, part of every path of results.")
    version: int = Field(ge=1, description="Raised whenever the problems change.")
    description: str = Field(default="", description="What the workload is for.")
    op: Op = Field(default="gemm", description="Operation; gemm is D = A x B with s32 output.")
    dtypes: tuple[Dtype, ...] = Field(min_length=1, description="Data types, each of which gets all problems.")
    bit_op: BitOp = Field(default="and", description="Bit operation of b1.")
    space: str = Field(
        default="paper9", min_length=1, description="Template space, by name or path, unless another is asked for."
    )
    rounds: dict[ProtocolName, Rounds] = Field(
        default=DEFAULT_ROUNDS,
        description="Samples of a contender's time, by protocol and dtype; where not given 16 (cold) and 6 (hot), "
        "and 3 for s4.",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the operands and of the order of launches.")
    limits: Limits = Field(default=Limits(), description="What one problem may cost.")
    problems: tuple[Source, ...] = Field(min_length=1, description="Sources of problems, in order.")

    @field_validator("rounds")
    @classmethod
    def _fill_rounds(cls, rounds: dict[ProtocolName, Rounds]) -> dict[ProtocolName, Rounds]:
        return {name: {**default, **rounds.get(name, {})} for name, default in DEFAULT_ROUNDS.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.dtypes)) < len(self.dtypes):
            raise LocatedError(("dtypes",), "holds a dtype twice; remove one")
        total = sum(source.size for source in self.problems)
        if total > MAX_PROBLEMS:
            raise LocatedError(("problems",), f"expand to {total} problems; give at most {MAX_PROBLEMS}")
        for dtype in self.dtypes:
            self._check_alignment(dtype)
            for loc, problem in self._expand(dtype):
                self._check_size(loc, problem)
        return self

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the content, without its description, whatever the key order and formatting."""
        return fingerprint(self.model_dump(mode="json", exclude_defaults=True, exclude={"description"}))

    def problems_for(self, dtype: Dtype) -> tuple[Problem, ...]:
        """The problems of ``dtype`` in the order of their sources, the first of equal ones kept.

        Raises:
            SpecError: the workload does not have ``dtype``.
        """
        if dtype not in self.dtypes:
            raise SpecError(f"workload {self.name!r} has no {dtype}; it has {', '.join(self.dtypes)}")
        return tuple(dict.fromkeys(problem for _, problem in self._expand(dtype)))

    def protocol(self, name: ProtocolName, dtype: Dtype) -> Protocol:
        """How ``dtype`` is timed under the protocol ``name``."""
        rounds = self.rounds[name][dtype]
        return Protocol(
            name=name,
            rounds=rounds,
            screen_rounds=SCREEN_ROUNDS[name][dtype],
            contender_margin=CONTENDER_MARGIN[name],
            reference_rounds=min(REFERENCE_ROUNDS[name], rounds),
            seed=self.seed,
        )

    def _expand(self, dtype: Dtype) -> Iterator[tuple[Loc, Problem]]:
        bit_op = self.bit_op if dtype == "b1" else None
        taken: set[tuple[int, int, int]] = set()
        for i, source in enumerate(self.problems):
            try:
                for loc, (m, n, k) in source.shapes(K_ALIGNMENT[dtype], self.limits, taken):
                    taken.add((m, n, k))
                    yield ("problems", i, *loc), Problem(op=self.op, dtype=dtype, m=m, n=n, k=k, bit_op=bit_op)
            except LocatedError as error:
                raise LocatedError(("problems", i, *error.loc), f"{error} ({dtype})") from None

    def _check_alignment(self, dtype: Dtype) -> None:
        for axis, alignment in ((1, N_ALIGNMENT), (2, K_ALIGNMENT[dtype])):
            for i, source in enumerate(self.problems):
                for loc, value in source.extents(axis):
                    if value % alignment:
                        raise LocatedError(("problems", i, *loc), _misaligned("mnk"[axis], value, alignment, dtype))

    def _check_size(self, loc: Loc, problem: Problem) -> None:
        shape = f"{problem.m} x {problem.n} x {problem.k} ({problem.dtype})"
        size, limits = problem.operand_bytes + problem.output_bytes, self.limits
        if size > limits.max_bytes:
            raise LocatedError(
                loc,
                f"gives {shape}, which needs {size} bytes; shrink it or raise limits.max_bytes ({limits.max_bytes})",
            )
        if problem.macs > limits.max_macs:
            raise LocatedError(
                loc,
                f"gives {shape}, which is {problem.macs} multiply-adds; "
                f"shrink it or raise limits.max_macs ({limits.max_macs})",
            )


def _misaligned(axis: str, value: int, alignment: int, dtype: Dtype) -> str:
    below = value // alignment * alignment
    nearest = f"{below} or {below + alignment}" if below else f"{alignment}"
    return f"is {axis}={value}, which is not a multiple of {alignment} as {dtype} needs; use {nearest}"


def workload_names() -> list[str]:
    """Names of the workloads that ship with tilearena, sorted."""
    return sorted(_shipped("workloads"))


def space_names() -> list[str]:
    """Names of the spaces that ship with tilearena, sorted."""
    return sorted(_shipped("spaces"))


def load_workload(name_or_path: str) -> Workload:
    """A shipped workload by name, or the one in a file ending in .yaml or .yml.

    Raises:
        SpecError: no such workload, or a mistake in it, with file, line and key.
    """
    return load(Workload, _path(Workload, "workloads", name_or_path))


def load_space(name_or_path: str, chain: tuple[Path, ...] = ()) -> Space:
    """A shipped space by name, or the one in a file ending in .yaml or .yml.

    ``chain``: the files of the space that includes it, of the one that includes that, and so on.

    Raises:
        SpecError: no such space, or a mistake in it, with file, line and key.
    """
    path = space_path(name_or_path)
    return load(Space, path, context=(*chain, path.absolute()))


def space_path(name_or_path: str) -> Path:
    """The file of `load_space`.

    Raises:
        SpecError: no such space ships.
    """
    return _path(Space, "spaces", name_or_path)


def is_path(name_or_path: str) -> bool:
    """Whether it names a file, and not a workload or space that ships."""
    return name_or_path.endswith((".yaml", ".yml"))


def _shipped(folder: str) -> dict[str, Path]:
    return {path.stem: path for path in Path(str(files(f"tilearena.specs.{folder}"))).glob("*.yaml")}


def _path(model: type[Workload | Space], folder: str, name_or_path: str) -> Path:
    if is_path(name_or_path):
        return Path(name_or_path)
    shipped = _shipped(folder)
    if name_or_path not in shipped:
        raise SpecError(
            f"no {model.__name__.lower()} named {name_or_path!r}; "
            f"use {', '.join(sorted(shipped))}, or a path that ends in .yaml"
        )
    return shipped[name_or_path]


def export_schemas(folder: Path) -> None:
    """Write the JSON Schemas ``workload.schema.json`` and ``space.schema.json``, for editors, into ``folder``."""
    for model in (Workload, Space):
        text = json.dumps(model.model_json_schema(), indent=2) + "\n"
        (folder / f"{model.__name__.lower()}.schema.json").write_text(text, encoding="utf-8")
