// One CUTLASS 2.x device::Gemm instantiation behind the ta_launch interface.
#pragma once
#include "abi.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/device/gemm.h"

namespace tilearena {

using cutlass::gemm::GemmShape;

// Accumulate and scale in s32: the library's default epilogue for s8 goes through float, which is not exact.
using Epilogue = cutlass::epilogue::thread::LinearCombination<int32_t, 4, int32_t, int32_t>;

template <class Element, class Operator, class Threadblock, class Warp, class Instruction, int Stages>
using Gemm = cutlass::gemm::device::Gemm<
    Element, cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor, int32_t, cutlass::layout::RowMajor,
    int32_t, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Threadblock, Warp, Instruction, Epilogue,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, Stages,
    128 / cutlass::sizeof_bits<Element>::value, 128 / cutlass::sizeof_bits<Element>::value, false, Operator>;

template <class G>
int launch(const ta_gemm* g, int launches, cudaStream_t stream) {
  using Element = typename G::ElementA;
  typename G::Arguments arguments({g->m, g->n, g->k}, {static_cast<const Element*>(g->a), g->k},
                                  {static_cast<const Element*>(g->b), g->k}, {g->d, g->n}, {g->d, g->n}, {1, 0});
  if (G::can_implement(arguments) != cutlass::Status::kSuccess) return 1;
  G gemm;
  if (gemm.initialize(arguments, nullptr, stream) != cutlass::Status::kSuccess) return 2;
  for (int i = 0; i < launches; ++i)
    if (gemm.run(stream) != cutlass::Status::kSuccess) return 2;
  return 0;
}

}  // namespace tilearena
