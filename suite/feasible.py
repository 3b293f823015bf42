"""Problem + Template + Device -> whether it runs; pure, needs no GPU, and every rejection carries a reason."""

from tilearena.records import BitOp, Device, Dtype, Problem, Support, Template

#: gridDim.y, which carries the tiles of N, or of M where they are swapped (CUDA C++ Programming Guide, technical
#: specifications).
MAX_GRID_Y = 65_535
#: Kept free for the CUDA contexts, workspaces, guard bands, and what the rings have beside two slices (12 L2s in all).
POOL_BYTES = 2 << 30
#: Of kernels whose threadblocks share a tile (kernels/workspace.cuh): semaphores of cutlass2, partial sums of cutlass3.
#: The latter lie beside barriers, of which this is more than all that fit.
SEMAPHORE_BYTES, PARTIALS_BYTES, BARRIERS_BYTES = 4 << 20, 256 << 20, 1 << 20
WGMMA_ARCH = 90


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
    if template.generator == "cutlass3" and device.arch != WGMMA_ARCH:
        return f"wgmma exists on sm_{WGMMA_ARCH} alone, {device.product} is sm_{device.arch}"
    if template.generator == "cutlass3" and device.sm_total is not None:
        return "wgmma kernels size their grid by the whole card, not by a partition of its SMs"
    if template.smem_bytes > device.smem_per_block_bytes:
        return f"needs {template.smem_bytes} bytes of shared memory, a block has {device.smem_per_block_bytes}"
    if reason := _too_many_tiles(problem, template):
        return reason
    needed = memory_needed(problem)
    if needed > device.memory_bytes:
        return f"needs {needed} bytes of device memory, {device.product} has {device.memory_bytes}"
    return None


def _too_many_tiles(problem: Problem, template: Template) -> str | None:
    """Of a grid, of the workspace, or of K for every threadblock that shares it to have one."""
    tiles_m, tiles_n, steps = (
        -(-extent // tile) for extent, tile in zip((problem.m, problem.n, problem.k), template.threadblock, strict=True)
    )
    # a persistent kernel's grid is as large as the card
    if template.schedule in ("multistage", "warp_specialized"):
        axis, along_y = ("M", tiles_m) if template.swapped else ("N", tiles_n)
        if along_y > MAX_GRID_Y:
            return f"needs {along_y} tiles along {axis}, a grid has at most {MAX_GRID_Y}"
    if template.split_k == 1:
        return None
    if _too_few(steps, template):
        return f"K has {steps} steps of this template, too few for {template.split_k} threadblocks"
    if template.adding:
        return None  # to D itself
    needed, there = _workspace(tiles_m, tiles_n, template)
    return f"needs {needed} bytes of workspace for partial results, there are {there}" if needed > there else None


def _too_few(steps: int, template: Template) -> bool:
    """Whether a threadblock would have no step: the first ones get the ceiling, but cutlass3 shares out evenly.

    Parts that are ``adding`` are shared out by our own sm90.cuh, which gives the first ones the ceiling, too.
    (``gemm_k_size`` in cutlass/gemm/kernel/gemm.h, ``big_units_`` in cutlass/gemm/kernel/tile_scheduler_params.h.)
    """
    if template.generator == "cutlass3" and not template.adding:
        return steps < template.split_k
    return -(-steps // template.split_k) * (template.split_k - 1) >= steps


def _workspace(tiles_m: int, tiles_n: int, template: Template) -> tuple[int, int]:
    """Bytes that the partial results of a problem take, and that there are for them."""
    if template.generator == "cutlass2":
        return 4 * tiles_m * tiles_n, SEMAPHORE_BYTES
    cluster_m, cluster_n = template.cluster
    whole = -(-tiles_m // cluster_m) * cluster_m * -(-tiles_n // cluster_n) * cluster_n
    return 4 * template.threadblock[0] * template.threadblock[1] * whole, PARTIALS_BYTES - BARRIERS_BYTES
