"""A tile of a space, and the templates that it stands for: every combination of what its lists name."""

from itertools import product
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tilearena.records import (
    BITS,
    BitOp,
    Dtype,
    Generator,
    Schedule,
    Template,
)
from tilearena.yaml_lines import LocatedError, YamlRecord, require_no_duplicates

Pair = tuple[Annotated[int, Field(ge=8, le=512)], Annotated[int, Field(ge=8, le=512)]]
Stages = Annotated[int, Field(ge=2, le=12)]
KBytes = Literal[64, 128, 256]
Cluster = tuple[Literal[1, 2, 4], Literal[1, 2, 4]]
SplitK = Literal[1, 2, 4, 8, 16]

#: M, N, K of the integer ``mma.sync`` of each dtype (PTX ISA, "mma"); K is 256 bits for all.
INSTRUCTION: dict[Dtype, tuple[int, int, int]] = {"s8": (16, 8, 32), "s4": (16, 8, 64), "b1": (16, 8, 256)}
MAX_WARPS = 32
#: Rows of a ``wgmma``, and the most columns (PTX ISA, "wgmma.mma_async").
WGMMA_M, WGMMA_N = 64, 256
#: Warp groups of a schedule that share one tile of D.
SHARING: dict[Schedule, int] = {"multistage": 1, "warp_specialized": 1, "pingpong": 1, "cooperative": 2}


class Tile(YamlRecord):
    """A tile of D, as [M, N], and every combination of its lists."""

    threadblock: Pair = Field(description="Rows and columns of D that one threadblock computes.")
    generator: Generator = Field(
        default="cutlass2",
        description="cutlass2 is device::Gemm on mma.sync; cutlass3 the collective builder's kernels on wgmma (sm_90).",
    )
    warp: Pair | None = Field(
        default=None,
        description="Rows and columns of D that one warp computes; they divide the threadblock's. Only cutlass2.",
    )
    stages: tuple[Stages, ...] = Field(default=(), description="Pipeline stages; those of the space unless given.")
    k_bytes: KBytes | None = Field(
        default=None, description="Bytes of K in one stage; those of the space unless given."
    )
    split_k: tuple[SplitK, ...] = Field(
        default=(1,), min_length=1, description="Threadblocks that share the K of one tile of D."
    )
    swizzles: tuple[Literal[1, 2, 4, 8], ...] = Field(
        default=(1,), min_length=1, description="Widths of the threadblock swizzle. Only cutlass2."
    )
    schedules: tuple[Schedule, ...] = Field(
        default=(), description="warp_specialized, pingpong or cooperative; cutlass3 needs one."
    )
    clusters: tuple[Cluster, ...] = Field(
        default=((1, 1),), min_length=1, description="Threadblocks of a cluster along M and N. Only cutlass3."
    )
    stream_k: bool = Field(default=False, description="Stream-K, too, beside each cooperative kernel. Only cutlass3.")
    swapped: bool = Field(default=False, description="Compute the transpose of D. Only cutlass3.")
    adding: bool = Field(
        default=False, description="Split-K by sums in memory, not one after the other. Only cutlass3, any schedule."
    )
    dtypes: tuple[Dtype, ...] = Field(default=(), description="Data types; those of the space unless given.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_no_duplicates(self, "stages", "split_k", "swizzles", "schedules", "clusters", "dtypes")
        if self.generator == "cutlass3":
            self._require_cutlass3()
        else:
            self._require_cutlass2()
        return self

    def _differs(self, key: str) -> bool:
        """Whether it is not the default."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)

    def _require_cutlass2(self) -> None:
        for key in ("schedules", "clusters", "stream_k", "swapped", "adding"):
            if self._differs(key):
                raise LocatedError((key,), "is of cutlass3; remove it, or set generator")
        if self.warp is None:
            raise LocatedError(("warp",), "is missing; cutlass2 needs it")
        (bm, bn), (wm, wn) = self.threadblock, self.warp
        if wm % 16 or wn % 8:
            raise LocatedError(("warp",), f"is {[wm, wn]}; give multiples of [16, 8], the size of the instruction")
        if bm % wm or bn % wn or (bm // wm) * (bn // wn) > MAX_WARPS:
            raise LocatedError(
                ("warp",), f"is {[wm, wn]}, which does not divide {[bm, bn]} into 1..{MAX_WARPS} warps; change one"
            )

    def _require_cutlass3(self) -> None:
        for key in ("warp", "swizzles"):
            if self._differs(key):
                raise LocatedError((key,), "is of cutlass2; remove it, or leave generator out")
        if not self.schedules or "multistage" in self.schedules:
            raise LocatedError(("schedules",), "needs one or more of warp_specialized, pingpong, cooperative")
        rows, columns = reversed(self.threadblock) if self.swapped else self.threadblock
        least = WGMMA_M * max(SHARING[schedule] for schedule in self.schedules)
        if rows % least or columns % 8:
            raise LocatedError(
                ("threadblock",),
                f"is {list(self.threadblock)}, but its wgmma needs multiples of {least} rows and 8 columns",
            )
        if self.adding and (self.stream_k or 1 in self.split_k):
            raise LocatedError(("adding",), "is of split_k above 1, without stream_k; change one")
        if (self.stream_k or (max(self.split_k) > 1 and not self.adding)) and self.schedules != ("cooperative",):
            raise LocatedError(("schedules",), "has to be cooperative alone for stream_k or split_k")

    def templates(
        self, name: str, dtype: Dtype, bit_op: BitOp | None, stages: tuple[int, ...], k_bytes: int
    ) -> list[Template]:
        """Its templates in order; ``stages`` and ``k_bytes`` are those of the space."""
        k = (self.k_bytes or k_bytes) * 8 // BITS[dtype]
        common: dict[str, Any] = {
            "generator": self.generator,
            "dtype": dtype,
            "bit_op": bit_op if dtype == "b1" else None,
            "threadblock": (*self.threadblock, k),
        }
        stages = self.stages or stages
        if self.generator == "cutlass3":
            return [
                Template(
                    **common,
                    **self._wgmma(dtype, schedule, k),
                    label=_label(name, s, c, schedule, split, stream),
                    stages=s,
                    cluster=c,
                    schedule=schedule,
                    split_k=split,
                    stream_k=stream,
                    swapped=self.swapped,
                    adding=self.adding,
                )
                for schedule, c, s, (stream, split) in product(self.schedules, self.clusters, stages, self._shares())
            ]
        assert self.warp is not None
        shapes: dict[str, Any] = {"warp": (*self.warp, k), "instruction": INSTRUCTION[dtype]}
        return [
            Template(
                **common, **shapes, label=_label(name, s, split=split, swizzle=z), stages=s, swizzle=z, split_k=split
            )
            for s, z, split in product(stages, self.swizzles, self.split_k)
        ]

    def count(self, stages: tuple[int, ...]) -> int:
        """How many templates `templates` has, without making them."""
        lists = (self.schedules or ("multistage",), self.clusters, self.stages or stages, self.swizzles, self._shares())
        return prod(map(len, lists))

    def _shares(self) -> list[tuple[bool, int]]:
        """Who shares tiles: (stream-K, split-K)."""
        found: list[tuple[bool, int]] = [(False, split) for split in self.split_k]
        return [*found, (True, 1)] if self.stream_k else found

    def _wgmma(self, dtype: Dtype, schedule: Schedule, k: int) -> dict[str, Any]:
        """Shapes of a warp group's part of a tile, and of its instruction, in terms of D."""
        bm, bn = self.threadblock
        sharing = SHARING[schedule]
        if self.swapped:
            return {
                "warp": (bm, bn // sharing, k),
                "instruction": (min(bm, WGMMA_N), WGMMA_M, 256 // BITS[dtype]),
            }
        return {"warp": (bm // sharing, bn, k), "instruction": (WGMMA_M, min(bn, WGMMA_N), 256 // BITS[dtype])}


def _label(
    name: str,
    stages: int,
    cluster: tuple[int, int] = (1, 1),
    schedule: Schedule = "multistage",
    split: int = 1,
    stream: bool = False,
    swizzle: int = 1,
) -> str:
    """``large/3``, and what else is not as usual."""
    parts = [name, str(stages)]
    parts += [schedule] if schedule != "multistage" else []
    parts += [f"c{cluster[0]}x{cluster[1]}"] if cluster != (1, 1) else []
    parts += [f"z{swizzle}"] if swizzle > 1 else []
    parts += ["streamk"] if stream else []
    return "/".join([*parts, *([f"k{split}"] if split > 1 else [])])
