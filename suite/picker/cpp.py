"""Pickers -> one C++17 header that depends on nothing: the same picks in some ten nanoseconds.

The tree is a table, and its terms are a switch over the expressions of `tilearena.picker.terms` in 64-bit integers.
"""

import re
from collections.abc import Iterable, Sequence

from tilearena.picker import terms
from tilearena.picker.model import LEAF, Model
from tilearena.records import K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, Template

HEAD = """\
// Picks CUTLASS GEMM templates for {product} ({space}, {protocol} operands). Written by tilearena {version}.
//
// For each dtype, select(m, n, k) answers for D[m, n] (s32, row-major) = A[m, k] (row-major) x B[k, n] (column-major)
// with an index of that dtype's templates, or -1 where none is known to run: an extent is not within 1..{max_extent},
// n is no multiple of {n_alignment}, or k none of 16 (s8), 32 (s4) or 128 (b1). It reads constants alone.
#pragma once

#include <cstdint>

namespace tilearena::{name} {{

// Shapes are (m, n, k) in elements, a cluster (m, n) in threadblocks, all in terms of D.
struct Template {{
  const char* id;
  const char* label;
  const char* generator;
  int threadblock[3];
  int warp[3];
  int instruction[3];
  int stages;
  int split_k;
  int swizzle;
  int cluster[2];
  const char* schedule;
  bool stream_k;
  bool swapped;
  bool adding;
}};
"""
DTYPE = """
namespace {dtype} {{

// Trained on {trained_on}.
inline constexpr Template templates[] = {{
{templates}
}};

namespace detail {{

// "At most threshold" goes on with the next node, else with nodes[next]; of a leaf (term -1) next is a place in lists.
struct Node {{
  std::int64_t threshold;
  std::int32_t term;
  std::int32_t next;
}};

inline constexpr Node nodes[] = {{
{nodes}
}};

// Each list ends with -1.
inline constexpr std::int16_t lists[] = {{
{lists}
}};

inline std::int64_t value(int term, [[maybe_unused]] std::int64_t m, [[maybe_unused]] std::int64_t n,
                          [[maybe_unused]] std::int64_t k) noexcept {{
  switch (term) {{
{terms}
    default:
      return 0;
  }}
}}

inline bool can_run(int index, [[maybe_unused]] std::int64_t m, [[maybe_unused]] std::int64_t n,
                    [[maybe_unused]] std::int64_t k) noexcept {{
  switch (index) {{
{conditions}
    default:
      return true;
  }}
}}

}}  // namespace detail

inline int select(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {{
  constexpr std::int64_t most = {max_extent};
  const bool within = 1 <= m && m <= most && 1 <= n && n <= most && 1 <= k && k <= most;
  if (!within || n % {n_alignment} != 0 || k % {k_alignment} != 0) {{
    return -1;
  }}
  const detail::Node* node = detail::nodes;
  while (node->term >= 0) {{
    node = detail::value(node->term, m, n, k) <= node->threshold ? node + 1 : detail::nodes + node->next;
  }}
  for (const std::int16_t* index = detail::lists + node->next; *index >= 0; ++index) {{
    if (detail::can_run(*index, m, n, k)) {{
      return *index;
    }}
  }}
  return -1;
}}

}}  // namespace {dtype}
"""
WIDTH = 110


def namespace(device: str, space: str, protocol: str) -> str:
    """Names as C++ has them: ``nvidia_h200::h200_all::cold``."""
    return "::".join(re.sub(r"\W", "_", part, flags=re.ASCII) for part in (device, space, protocol))


def header(models: Sequence[Model], version: str) -> str:
    """The header with ``models`` of one device, space and protocol, one for each dtype."""
    about = models[0].about
    name = namespace(about["device"], about["space"], about["protocol"])
    head = HEAD.format(
        product=about["product"],
        space=about["space"],
        protocol=about["protocol"],
        version=version,
        max_extent=MAX_EXTENT,
        n_alignment=N_ALIGNMENT,
        name=name,
    )
    return head + "".join(map(_dtype, models)) + f"\n}}  // namespace tilearena::{name}\n"


def _dtype(model: Model) -> str:
    starts: list[int] = []
    flat: list[int] = []
    for list_ in model.lists:
        starts.append(len(flat))
        flat += [*list_, -1]
    nodes = [
        f"{{{threshold}, {term}, {starts[next_] if term == LEAF else next_}}}"
        for term, threshold, next_ in zip(model.term, model.threshold, model.next, strict=True)
    ]
    conditions = [" && ".join(map(terms.as_cpp, terms.conditions(template))) for template in model.records]
    values = [terms.as_cpp(terms.expression(term, model.sm_count)) for term in model.terms]
    dtype = model.records[0].dtype
    trained_on = [
        f"{part['n_problems']} problems of {part['spec']} ({part['fingerprint']})" for part in model.trained_on
    ]
    return DTYPE.format(
        dtype=dtype,
        trained_on=" and ".join(trained_on),
        templates="\n".join(map(_template, model.records)),
        nodes=_wrapped(nodes),
        lists=_wrapped(map(str, flat)),
        terms=_cases(values),
        conditions=_cases(conditions),
        max_extent=MAX_EXTENT,
        n_alignment=N_ALIGNMENT,
        k_alignment=K_ALIGNMENT[dtype],
    )


def _template(t: Template) -> str:
    shapes = ", ".join(_braced(shape) for shape in (t.threadblock, t.warp, t.instruction))
    flags = ", ".join(str(flag).lower() for flag in (t.stream_k, t.swapped, t.adding))
    numbers = f"{t.stages}, {t.split_k}, {t.swizzle}, {_braced(t.cluster)}"
    return f'    {{"{t.id}", "{t.label}", "{t.generator}", {shapes}, {numbers}, "{t.schedule}", {flags}}},'


def _braced(numbers: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"


def _cases(values: Sequence[str]) -> str:
    """Of a switch, for each value that is not empty."""
    return "\n".join(f"    case {i}:\n      return {value};" for i, value in enumerate(values) if value)


def _wrapped(values: Iterable[str]) -> str:
    """Values with commas, in lines."""
    lines, line = [], "   "
    for value in values:
        if len(line) + len(value) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join([*lines, line])
