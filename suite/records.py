"""The nouns of the project, as frozen typed records: Problem, Template, Device, Protocol, Measurement.

A record that contradicts itself cannot be built. Units are part of a field's name.
"""

import hashlib
import json
import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Op = Literal["gemm"]
Dtype = Literal["s8", "s4", "b1"]
BitOp = Literal["and", "xor"]
ProtocolName = Literal["cold", "hot"]
Support = Literal["native", "emulated", "unsupported"]
#: Where the rows of a recording come from: measured by tilearena, or imported from a file of another tool.
Origin = Literal["measured", "cutlass_profiler", "labels"]
#: cutlass2 is ``device::Gemm`` on ``mma.sync``; cutlass3 the collective builder's kernels on TMA and ``wgmma``.
Generator = Literal["cutlass2", "cutlass3"]
#: Of the warps of a threadblock. multistage: all load (``cp.async``) and multiply. In the others one warp group loads
#: (TMA), and one multiplies, two take turns on tiles (pingpong), or two share each tile (cooperative).
Schedule = Literal["multistage", "warp_specialized", "pingpong", "cooperative"]
MAX_EXTENT = 1 << 20
Extent = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Positive = Annotated[int, Field(ge=1, lt=1 << 63)]

DTYPES: tuple[Dtype, ...] = ("s8", "s4", "b1")
PROTOCOLS: tuple[ProtocolName, ...] = ("cold", "hot")
BITS: dict[Dtype, int] = {"s8": 8, "s4": 4, "b1": 1}
#: Names become folders and files, so no separator and no leading dot.
SLUG = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
#: Elements of K in one 128-bit access, the alignment that CUTLASS's tensor-op templates ask of A and B.
K_ALIGNMENT: dict[Dtype, int] = {dtype: 128 // bits for dtype, bits in BITS.items()}
#: N is the pitch of D: 8 s32 values are one 32-byte DRAM sector.
N_ALIGNMENT = 8


class Record(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def fingerprint(value: Any) -> str:
    """16 hex digits of SHA-256 over canonical JSON; equal content gives equal fingerprints."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Problem(Record):
    """D[m, n] (s32, row-major) = A[m, k] (row-major) x B[k, n] (column-major), alpha 1, beta 0: the "TN" GEMM."""

    op: Op = "gemm"
    dtype: Dtype
    m: Extent
    n: Extent
    k: Extent
    bit_op: BitOp | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.dtype == "b1") != (self.bit_op is not None):
            raise ValueError("bit_op ('and' or 'xor') is given for b1 and for nothing else")
        if self.n % N_ALIGNMENT:
            raise ValueError(f"n={self.n} must be a multiple of {N_ALIGNMENT}")
        if self.k % K_ALIGNMENT[self.dtype]:
            raise ValueError(f"k={self.k} must be a multiple of {K_ALIGNMENT[self.dtype]} for {self.dtype}")
        return self

    @property
    def operand_bytes(self) -> int:
        """Bytes of A and B."""
        return (self.m + self.n) * self.k * BITS[self.dtype] // 8

    @property
    def output_bytes(self) -> int:
        """Bytes of D (s32)."""
        return 4 * self.m * self.n

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return self.m * self.n * self.k


class Template(Record):
    """One CUTLASS instantiation; shapes are (M, N, K) in elements, clusters (M, N) in threadblocks, all in terms of D.

    ``warp`` is the tile of what multiplies on its own: a warp, or (cutlass3) a warp group. ``swapped`` computes the
    transpose of D, so that N takes the 64 rows of a ``wgmma`` and M its columns. ``split_k`` threadblocks share the K
    of one tile of D, one after the other or, ``adding``, by sums in memory that is cleared first; with ``stream_k`` the
    scheduler shares out tiles so that all SMs have as much to do.
    """

    generator: Generator = "cutlass2"
    dtype: Dtype
    bit_op: BitOp | None = None
    label: str
    threadblock: tuple[int, int, int]
    warp: tuple[int, int, int]
    instruction: tuple[int, int, int]
    stages: Annotated[int, Field(ge=2, le=12)]
    split_k: Annotated[int, Field(ge=1, le=64)] = 1
    swizzle: Annotated[int, Field(ge=1, le=8)] = 1
    cluster: tuple[int, int] = (1, 1)
    schedule: Schedule = "multistage"
    stream_k: bool = False
    swapped: bool = False
    adding: bool = False

    @property
    def id(self) -> str:
        """Readable and stable, e.g. ``s8_128x256x64_w64x64x64_i16x8x32_st3``."""
        kind = self.dtype if self.bit_op is None else f"{self.dtype}{self.bit_op}"
        tb, warp, inst = ("x".join(map(str, shape)) for shape in (self.threadblock, self.warp, self.instruction))
        if self.generator == "cutlass2":
            kernel = f"{kind}_{tb}_w{warp}_i{inst}_st{self.stages}" + (f"_z{self.swizzle}" if self.swizzle > 1 else "")
        else:
            cluster = "x".join(map(str, self.cluster))
            kernel = f"{kind}_{tb}_c{cluster}_{self.schedule}_st{self.stages}" + ("_swapped" if self.swapped else "")
        return (
            kernel
            + ("_streamk" if self.stream_k else "")
            + (f"_k{self.split_k}{'a' if self.adding else ''}" if self.split_k > 1 else "")
        )

    @property
    def warps(self) -> int:
        """Warps of one threadblock, those that load included."""
        if self.generator == "cutlass3":
            return 8 if self.schedule == "warp_specialized" else 12
        return (self.threadblock[0] // self.warp[0]) * (self.threadblock[1] // self.warp[1])

    @property
    def smem_bytes(self) -> int:
        """Shared memory of the main loop: ``stages`` tiles of A and B."""
        m, n, k = self.threadblock
        return self.stages * (m + n) * k * BITS[self.dtype] // 8


class Device(Record):
    """What was measured on. ``uuid_sha256`` tells cards apart without naming them.

    Where a partition of its SMs was used, ``sm_count`` is the partition's and ``sm_total`` the whole card's.
    """

    slug: str
    product: str
    compute_capability: tuple[int, int]
    sm_count: Positive
    l2_bytes: Positive
    memory_bytes: Positive
    smem_per_block_bytes: Positive
    smem_per_sm_bytes: Positive
    sm_clock_max_mhz: Positive | None = None
    memory_clock_max_mhz: Positive | None = None
    power_limit_w: FiniteFloat | None = None
    uuid_sha256: str | None = None
    driver: str | None = None
    sm_total: Positive | None = None

    @property
    def arch(self) -> int:
        """Compute capability as in ``sm_90``."""
        return self.compute_capability[0] * 10 + self.compute_capability[1]


def device_slug(product: str) -> str:
    """``NVIDIA H200`` -> ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", product.lower()).strip("-")


class Protocol(Record):
    """How a time is taken.

    ``cold``: one launch a sample, on operands last touched more than ``l2_multiple`` x L2 of traffic ago.
    ``hot``: a sample is the mean of back-to-back launches on the same operands that fill ``hot_fill_ns``.

    Every template gets ``screen_rounds`` samples; those that may still win or tie, the contenders, then get ``rounds``
    fresh ones, see `tilearena.race`. The default template, its control and the vendor's kernels get at least
    ``reference_rounds`` of these. Without a screen all candidates are contenders. Of a large space at most
    ``max_contenders`` go on.
    """

    name: ProtocolName
    rounds: Annotated[int, Field(ge=1, le=64)]
    screen_rounds: Annotated[int, Field(ge=0, le=64)] = 2
    contender_margin: Annotated[FiniteFloat, Field(ge=0)] = 0.10
    reference_rounds: Annotated[int, Field(ge=1, le=64)] = 4
    max_contenders: Annotated[int, Field(ge=1)] | None = None
    seed: int
    distribution: Literal["uniform-bits", "unknown"] = "uniform-bits"
    l2_multiple: FiniteFloat = 3.0
    hot_fill_ns: Positive = 50_000
    hot_max_launches: Positive = 20

    @model_validator(mode="after")
    def _reference_rounds_are_rounds(self) -> Self:
        if self.reference_rounds > self.rounds:
            raise ValueError(f"reference_rounds {self.reference_rounds} must be at most rounds {self.rounds}")
        return self


class Status(StrEnum):
    """Outcome of one (problem, template); it decides which fields a Measurement has.

    ``best`` and ``not_best`` are of labels, which know no times.
    """

    OK = "ok"
    BUILD_FAILED = "build_failed"
    INFEASIBLE = "infeasible"
    LAUNCH_FAILED = "launch_failed"
    WRONG_RESULT = "wrong_result"
    BEST = "best"
    NOT_BEST = "not_best"


#: All that a recording of labels may say of a template.
LABELS = (Status.BEST, Status.NOT_BEST)


class Measurement(Record):
    """One (problem, candidate): every accepted sample, or the reason why there is none.

    ``elapsed_ns[i]`` is the time of ``launches`` back-to-back launches; a template's screen samples come first.
    """

    m: int
    n: int
    k: int
    candidate: int
    status: Status
    elapsed_ns: tuple[int, ...] = ()
    launches: int = 0
    reason: str = ""

    @model_validator(mode="after")
    def _status_decides(self) -> Self:
        timed = bool(self.elapsed_ns) and self.launches >= 1 and min(self.elapsed_ns, default=0) > 0
        if self.status is Status.OK and (not timed or self.reason):
            raise ValueError("status ok needs positive elapsed_ns and launches, and no reason")
        if self.status in LABELS and (self.elapsed_ns or self.launches or self.reason):
            raise ValueError(f"status {self.status} has neither times nor a reason")
        failed = self.status is not Status.OK and self.status not in LABELS
        if failed and (self.elapsed_ns or self.launches or not self.reason):
            raise ValueError(f"status {self.status} needs a reason and has no times")
        return self
