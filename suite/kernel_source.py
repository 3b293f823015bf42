"""Templates -> the CUDA translation units that instantiate them.

Templates that differ in what is an argument of the same kernel (split-K) share a unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilearena.records import Template

ELEMENT = {"s8": "int8_t", "s4": "cutlass::int4b_t", "b1": "cutlass::uint1b_t"}
OPERATOR = {None: "OpMultiplyAddSaturate", "and": "OpAndPopc", "xor": "OpXorPopc"}
SCHEDULE = {"warp_specialized": "WarpSpecialized", "pingpong": "Pingpong", "cooperative": "Cooperative"}
#: What a unit includes of ours, so that work on the harness, or on other kernels, compiles it not again.
TEMPLATE_HEADERS = ("abi.h", "gemm.cuh")
SERIAL_HEADERS = (*TEMPLATE_HEADERS, "workspace.cuh", "serial.cuh")
SM90_HEADERS = ("abi.h", "workspace.cuh", "sm90.cuh")
BITS_HEADERS = (*SM90_HEADERS, "sm90_bits.cuh")
#: Headers of kernels that not every library has.
WIDE_HEADERS = frozenset((*SERIAL_HEADERS, *BITS_HEADERS)) - frozenset(TEMPLATE_HEADERS)


@dataclass(frozen=True)
class Kernel:
    """One translation unit: its templates' ids, its source, and which headers of ours change it."""

    ids: tuple[str, ...]
    source: str
    headers: tuple[str, ...]
    arch_features: str = ""


def kernels_of(templates: Sequence[Template]) -> list[Kernel]:
    """The units of ``templates``, in the order of the first of each."""
    groups: dict[str, list[Template]] = {}
    for template in templates:
        groups.setdefault(_kernel(template), []).append(template)
    return [_unit(kernel, group) for kernel, group in groups.items()]


def table_source(ids: Sequence[str]) -> str:
    """The translation unit that lists the launchers of a library."""
    externs = "".join(f"int ta_launch_{id_}(const ta_gemm*, int, cudaStream_t);\n" for id_ in ids)
    entries = "".join(f'  {{"{id_}", ta_launch_{id_}}},\n' for id_ in ids)
    return (
        f'#include "abi.h"\nextern "C" {{\n{externs}extern const ta_entry ta_entries[];\n'
        f"extern const int ta_entry_count;\nconst ta_entry ta_entries[] = {{\n{entries}}};\n"
        f"const int ta_entry_count = {len(ids)};\n}}\n"
    )


def _unit(kernel: str, templates: Sequence[Template]) -> Kernel:
    first = templates[0]
    headers: tuple[str, ...] = TEMPLATE_HEADERS
    features = ""
    if first.generator == "cutlass3":
        headers, features = BITS_HEADERS if first.dtype == "b1" else SM90_HEADERS, "a"
    elif first.split_k > 1 or first.swizzle > 1:
        headers = SERIAL_HEADERS
    launchers = "".join(
        f'extern "C" int ta_launch_{t.id}(const ta_gemm* gemm, int launches, cudaStream_t stream) {{\n'
        f"  return {_call(t, kernel)};\n"
        "}\n"
        for t in templates
    )
    return Kernel(
        tuple(t.id for t in templates),
        f'#include "{headers[-1]}"\nusing namespace tilearena;\n{launchers}',
        headers,
        features,
    )


def _call(template: Template, kernel: str) -> str:
    if template.generator == "cutlass3":
        k = "gemm->k" if template.dtype == "s8" else "gemm->k / 8"
        return f"launch_sm90<{kernel}>(gemm, {k}, {template.split_k}, launches, stream)"
    if template.split_k > 1:
        return f"launch_serial<{kernel}>(gemm, {template.split_k}, launches, stream)"
    return f"launch<{kernel}>(gemm, launches, stream)"


def _kernel(template: Template) -> str:
    """The C++ type that is instantiated."""
    if template.generator == "cutlass3":
        return _wgmma_kernel(template)
    shapes = ", ".join(
        f"GemmShape<{', '.join(map(str, shape))}>"
        for shape in (template.threadblock, template.warp, template.instruction)
    )
    what = f"{ELEMENT[template.dtype]}, cutlass::arch::{OPERATOR[template.bit_op]}, {shapes}, {template.stages}"
    serial = template.split_k > 1
    if not serial and template.swizzle == 1:
        return f"Gemm<{what}>"
    return f"WideGemm<{what}, {template.swizzle}, {str(serial).lower()}>"


def _wgmma_kernel(template: Template) -> str:
    """Tile and cluster in terms of what the kernel computes: D, or its transpose; K in bytes."""
    (m, n, k), cluster = template.threadblock, template.cluster
    if template.swapped:
        m, n, cluster = n, m, (cluster[1], cluster[0])
    k_bytes = k if template.dtype == "s8" else k // 8
    tile, cluster_ = (f"Shape<{', '.join(f'Int<{e}>' for e in shape)}>" for shape in ((m, n, k_bytes), (*cluster, 1)))
    schedule = SCHEDULE[template.schedule]
    loop = f"<{tile}, {cluster_}, {schedule}, {template.stages}>"
    mainloop = f"Mainloop{loop}" if template.dtype == "s8" else f"BitMainloop{loop}::Collective"
    shared = template.stream_k or (template.split_k > 1 and not template.adding)
    scheduler = "StreamKScheduler" if shared else "PersistentScheduler"
    how = f"{str(template.swapped).lower()}, {str(template.adding).lower()}"
    return f"Sm90<{mainloop}, {tile}, {cluster_}, {schedule}, cutlass::gemm::{scheduler}, {how}>"
