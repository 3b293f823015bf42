"""A seeded log-uniform draw of problems, the same on every machine."""

import math
from collections.abc import Set
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from tilearena.records import N_ALIGNMENT, Extent
from tilearena.yaml_lines import LocatedError, YamlRecord

Extents = Annotated[tuple[Extent, ...], Field(min_length=1)]

#: Problems of one workload; the largest published data set of this kind has 116,100 (doi 10.26599/BDMA.2025.9020065).
MAX_PROBLEMS = 200_000
#: A draw takes rounds of max(count, MIN_TRIALS) trials; it gives up after MAX_ROUNDS, or one without a new problem.
MIN_TRIALS = 4096
MAX_ROUNDS = 32


class Limits(YamlRecord):
    """What a problem may cost. A random draw skips what exceeds them; a written problem that does is an error."""

    max_macs: int = Field(default=1 << 40, ge=1, description="Most multiply-adds (M x N x K) of one problem.")
    max_bytes: int = Field(
        default=8_000_000_000, ge=1, le=1 << 39, description="Most bytes of operands and output together."
    )


class Axis(YamlRecord):
    """A log-uniform extent: each multiple j x step within the range has a probability in proportion to log(1 + 1/j)."""

    range: tuple[Extent, Extent] = Field(description="Smallest and largest value, both included.")
    multiples: Extents = Field(default=(1,), description="The step is one of these, with equal chance for each.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.range[0] > self.range[1]:
            raise LocatedError(("range",), f"is {list(self.range)}; give the smaller value first")
        return self

    def steps(self, alignment: int) -> tuple[int, ...]:
        """The steps that also keep to ``alignment``.

        Raises:
            LocatedError: a step has no multiple within the range.
        """
        steps = tuple(math.lcm(multiple, alignment) for multiple in self.multiples)
        low, high = self.range
        for step in (alignment, *steps):
            if high // step < -(-low // step):
                raise LocatedError(("range",), f"is {[low, high]}, which holds no multiple of {step}; widen it")
        return steps

    def place(self, u: npt.NDArray[np.float64], step: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Values for uniform ``u`` [P] in [0, 1) on multiples of ``step`` [P]."""
        low, high = -(-self.range[0] // step), self.range[1] // step
        j = np.floor(low * np.exp(u * np.log((high + 1) / low))).astype(np.int64)
        return np.clip(j, low, high) * step


class RandomDraw(YamlRecord):
    """A seeded log-uniform draw of distinct problems within the limits."""

    count: int = Field(ge=1, le=MAX_PROBLEMS, description="Number of distinct problems.")
    seed: int = Field(ge=0, description="Seed of the draw.")
    m: Axis = Field(description="Range of M.")
    n: Axis = Field(description="Range of N; multiples of 8 whatever the steps.")
    k: Axis = Field(description="Range of K; multiples of 16 (s8), 32 (s4) or 128 (b1) whatever the steps.")
    max_macs: int | None = Field(
        default=None, ge=1, description="Most multiply-adds of one problem of this draw, where the limits allow more."
    )
    ragged_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of problems whose N and K ignore `multiples` and keep to the alignment only.",
    )

    def draw(
        self, k_alignment: int, limits: Limits, taken: Set[tuple[int, int, int]] = frozenset()
    ) -> list[tuple[int, int, int]]:
        """``count`` distinct shapes, none of them among ``taken``, in the order of the draw.

        Every trial takes seven numbers from the stream, whatever the dtype, and bytes are counted at 8 bits an element:
        so two dtypes differ only by the alignment of K. The stream is ``PCG64.random_raw``, which NumPy keeps stable.

        Raises:
            LocatedError: the ranges and limits do not hold enough distinct problems.
        """
        bits = np.random.PCG64(self.seed)
        trials = max(self.count, MIN_TRIALS)
        found: dict[tuple[int, int, int], None] = {}
        max_macs = limits.max_macs if self.max_macs is None else min(limits.max_macs, self.max_macs)
        for _ in range(MAX_ROUNDS):
            before = len(found)
            raw: npt.NDArray[np.uint64] = bits.random_raw(trials * 7).reshape(-1, 7)
            m, n, k = shapes = self._trial((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53, k_alignment)
            fits = (m * n * k <= max_macs) & ((m + n) * k + 4 * m * n <= limits.max_bytes)
            drawn = zip(*(axis[fits].tolist() for axis in shapes), strict=True)
            found.update(dict.fromkeys(shape for shape in drawn if shape not in taken))
            if len(found) >= self.count:
                return list(found)[: self.count]
            if len(found) == before:
                break
        raise LocatedError(
            ("count",),
            f"is {self.count}, but the ranges and limits gave only {len(found)} problems beside those before; lower it",
        )

    def _trial(self, u: npt.NDArray[np.float64], k_alignment: int) -> tuple[npt.NDArray[np.int64], ...]:
        """M, N and K, each [P], for uniform ``u`` [P, 7]: three places, three choices of the step, raggedness."""
        ragged = u[:, 6] < self.ragged_share
        columns = []
        for i, (name, alignment) in enumerate((("m", 1), ("n", N_ALIGNMENT), ("k", k_alignment))):
            axis: Axis = getattr(self, name)
            try:
                steps = np.array(axis.steps(alignment), dtype=np.int64)
            except LocatedError as error:
                raise LocatedError((name, *error.loc), str(error)) from None
            step = steps[(u[:, 3 + i] * len(steps)).astype(np.int64)]
            if name != "m":
                step = np.where(ragged, alignment, step)
            columns.append(axis.place(u[:, i], step))
        return tuple(columns)
