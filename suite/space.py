"""Problem + Device -> the templates that can serve it, in order; pure, needs no GPU."""

from itertools import product
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tilearena.errors import SpecError
from tilearena.records import BITS, BitOp, Device, Dtype, Op, Problem, Support, Template, fingerprint
from tilearena.yaml_lines import LocatedError, YamlRecord

Pair = tuple[Annotated[int, Field(ge=8, le=512)], Annotated[int, Field(ge=8, le=512)]]
Stages = Annotated[int, Field(ge=2, le=12)]

#: M, N, K of the integer ``mma.sync`` of each dtype (PTX ISA, "mma"); K is 256 bits for all.
INSTRUCTION: dict[Dtype, tuple[int, int, int]] = {"s8": (16, 8, 32), "s4": (16, 8, 64), "b1": (16, 8, 256)}
MAX_WARPS = 32
#: gridDim.y, which carries the tiles of N (CUDA C++ Programming Guide, technical specifications).
MAX_GRID_Y = 65_535
#: Kept free for the CUDA contexts, workspaces, guard bands, and what the rings have beside two slices (12 L2s in all).
POOL_BYTES = 2 << 30


class Tile(YamlRecord):
    """Tile sizes of a threadblock and of one of its warps, as [M, N]."""

    threadblock: Pair = Field(description="Rows and columns of D that one threadblock computes.")
    warp: Pair = Field(description="Rows and columns of D that one warp computes; they divide the threadblock's.")

    @model_validator(mode="after")
    def _warps_fill_the_threadblock(self) -> Self:
        (bm, bn), (wm, wn) = self.threadblock, self.warp
        if wm % 16 or wn % 8:
            raise LocatedError(("warp",), f"is {[wm, wn]}; give multiples of [16, 8], the size of the instruction")
        if bm % wm or bn % wn or (bm // wm) * (bn // wn) > MAX_WARPS:
            raise LocatedError(
                ("warp",), f"is {[wm, wn]}, which does not divide {[bm, bn]} into 1..{MAX_WARPS} warps; change one"
            )
        return self


class Default(YamlRecord):
    """The template that speedups refer to."""

    tile: str = Field(description="Name of its tile.")
    stages: Stages = Field(description="Its pipeline stages.")


class Space(YamlRecord):
    """A named, ordered list of templates: every tile with every number of stages."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="Name, part of every path of results.")
    version: int = Field(ge=1, description="Raised whenever the templates change.")
    description: str = Field(default="", description="What the space is for.")
    op: Op = Field(default="gemm", description="Operation that the templates serve.")
    generator: Literal["cutlass2"] = Field(default="cutlass2", description="cutlass2 is device::Gemm on mma.sync.")
    k_bytes: Literal[64, 128] = Field(default=64, description="Bytes of K in one stage.")
    tiles: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+$")], Tile] = Field(
        min_length=1, description="Tiles by name; their order is the order of the templates."
    )
    stages: tuple[Stages, ...] = Field(min_length=1, description="Numbers of pipeline stages, for each tile.")
    dtypes: tuple[Dtype, ...] = Field(min_length=1, description="Data types that the space serves.")
    default: Default = Field(description="The template that CUTLASS takes by default.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key in ("stages", "dtypes"):
            values = getattr(self, key)
            if len(set(values)) < len(values):
                raise LocatedError((key,), "holds a value twice; remove one")
        if self.default.tile not in self.tiles:
            names = ", ".join(self.tiles)
            raise LocatedError(("default", "tile"), f"is {self.default.tile!r}; use one of the tiles {names}")
        if self.default.stages not in self.stages:
            raise LocatedError(("default", "stages"), f"is {self.default.stages}; use one of {list(self.stages)}")
        return self

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the content, without its description; of all orders of keys only that of tiles counts."""
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"description"})
        return fingerprint({**content, "order": list(self.tiles)})

    @property
    def default_index(self) -> int:
        """Index of the default among the templates."""
        return list(self.tiles).index(self.default.tile) * len(self.stages) + self.stages.index(self.default.stages)

    def templates(self, dtype: Dtype, bit_op: BitOp | None = None) -> tuple[Template, ...]:
        """The templates in space order; ``bit_op`` is for b1 and ignored for other dtypes.

        Raises:
            SpecError: the space does not serve ``dtype``, or b1 comes without ``bit_op``.
        """
        if dtype not in self.dtypes:
            raise SpecError(f"space {self.name!r} has no {dtype}; it serves {', '.join(self.dtypes)}")
        if dtype == "b1" and bit_op is None:
            raise SpecError(f"space {self.name!r}: b1 needs a bit_op; give 'and' or 'xor'")
        k = self.k_bytes * 8 // BITS[dtype]
        return tuple(
            Template(
                dtype=dtype,
                bit_op=bit_op if dtype == "b1" else None,
                label=f"{name}/{stages}",
                threadblock=(*tile.threadblock, k),
                warp=(*tile.warp, k),
                instruction=INSTRUCTION[dtype],
                stages=stages,
            )
            for (name, tile), stages in product(self.tiles.items(), self.stages)
        )


def support(dtype: Dtype, bit_op: BitOp | None, arch: int) -> Support:
    """How ``sm_<arch>`` runs the ``mma.sync`` of ``dtype``, as seen in compiled code (SASS).

    s4 has left the tensor cores with sm_90 and b1 with sm_100: the compiler emulates them. For b1 xor on sm_90
    CUTLASS compiles a stub that computes nothing, so it counts as unsupported.
    """
    if arch < 80 or (dtype, bit_op, arch) == ("b1", "xor", 90):
        return "unsupported"
    first_emulated = {"s8": None, "s4": 90, "b1": 100}[dtype]
    return "emulated" if first_emulated is not None and arch >= first_emulated else "native"


def memory_needed(problem: Problem) -> int:
    """Bytes of device memory to measure ``problem``: two slices of operands and of outputs, and the rest."""
    return 2 * (problem.operand_bytes + problem.output_bytes) + POOL_BYTES


def rejection(problem: Problem, template: Template, device: Device) -> str | None:
    """Why ``template`` cannot run ``problem`` on ``device``, in one line; None if it can.

    Alignment needs no check: a misaligned Problem cannot be built, and every template reads 128 bits at a time.
    """
    kind = f"{problem.dtype} {problem.bit_op}" if problem.bit_op else problem.dtype
    if (problem.dtype, problem.bit_op) != (template.dtype, template.bit_op):
        return f"template {template.id} does not compute {kind}"
    if device.arch < 80:
        return f"sm_{device.arch} is older than sm_80, the first with these instructions"
    if support(problem.dtype, problem.bit_op, device.arch) == "unsupported":
        return f"{kind} does not exist on sm_{device.arch}"
    if template.smem_bytes > device.smem_per_block_bytes:
        return f"needs {template.smem_bytes} bytes of shared memory, a block has {device.smem_per_block_bytes}"
    tiles_n = -(-problem.n // template.threadblock[1])
    if tiles_n > MAX_GRID_Y:
        return f"needs {tiles_n} tiles along N, a grid has at most {MAX_GRID_Y}"
    needed = memory_needed(problem)
    if needed > device.memory_bytes:
        return f"needs {needed} bytes of device memory, {device.product} has {device.memory_bytes}"
    return None
