// CUTLASS 2.x device::Gemm with a wider threadblock swizzle, or with serial split-K, behind the ta_launch interface.
#pragma once
#include "gemm.cuh"
#include "workspace.cuh"

namespace tilearena {

template <class Element, class Operator, class Threadblock, class Warp, class Instruction, int Stages, int Swizzle,
          bool Serial>
using WideGemm = cutlass::gemm::device::Gemm<
    Element, cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor, int32_t, cutlass::layout::RowMajor,
    int32_t, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Threadblock, Warp, Instruction, Epilogue,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<Swizzle>, Stages,
    128 / cutlass::sizeof_bits<Element>::value, 128 / cutlass::sizeof_bits<Element>::value, Serial, Operator>;

// Threadblocks of one tile add their parts to D one after the other, in the order of a semaphore that the last of them sets
// back to zero (cutlass/gemm/kernel/gemm.h). So, unlike device::Gemm::initialize, nothing clears it before a launch.
template <class G>
int launch_serial(const ta_gemm* g, int slices, int launches, cudaStream_t stream) {
  using Element = typename G::ElementA;
  using Kernel = typename G::GemmKernel;
  typename G::Arguments arguments({g->m, g->n, g->k}, {static_cast<const Element*>(g->a), g->k},
                                  {static_cast<const Element*>(g->b), g->k}, {g->d, g->n}, {g->d, g->n}, {1, 0}, slices);
  if (G::can_implement(arguments) != cutlass::Status::kSuccess) return 1;
  auto* semaphores = static_cast<int*>(workspace<kSemaphoreBytes>(int64_t(G::get_workspace_size(arguments))));
  if (!semaphores) return 1;
  using Shape = typename G::ThreadblockShape;
  typename G::ThreadblockSwizzle swizzle;
  const auto tiles = swizzle.get_tiled_shape(arguments.problem_size, {Shape::kM, Shape::kN, Shape::kK}, slices);
  typename Kernel::Params params(arguments.problem_size, tiles, arguments.ref_A.non_const_ref(),
                                 arguments.ref_B.non_const_ref(), arguments.ref_C.non_const_ref(), arguments.ref_D,
                                 arguments.epilogue, semaphores);
  constexpr int kShared = int(sizeof(typename Kernel::SharedStorage));
  if (kShared >= (48 << 10) && cudaFuncSetAttribute(cutlass::Kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    kShared) != cudaSuccess)
    return 2;
  for (int i = 0; i < launches; ++i)
    cutlass::Kernel<Kernel><<<swizzle.get_grid_shape(tiles), Kernel::kThreadCount, kShared, stream>>>(params);
  return cudaGetLastError() == cudaSuccess ? 0 : 2;
}

}  // namespace tilearena
