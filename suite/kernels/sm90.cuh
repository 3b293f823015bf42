// CUTLASS 3.x kernels for sm_90a: TMA loads, wgmma, warp specialization, behind the ta_launch interface.
#pragma once
#include "abi.h"
#include "workspace.cuh"

#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"

namespace tilearena {

using cute::Int;
using cute::Shape;

struct WarpSpecialized {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecialized;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};
struct Pingpong {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};
struct Cooperative {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
};

// The main loop for s8, from the builder; sm90_bits.cuh has that for b1.
template <class Tile, class Cluster, class Schedule, int Stages>
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, int8_t, cutlass::layout::RowMajor, 16, int8_t,
    cutlass::layout::ColumnMajor, 16, int32_t, Tile, Cluster, cutlass::gemm::collective::StageCount<Stages>,
    typename Schedule::Mainloop>::CollectiveOp;

// Swapped, the kernel computes D^T = B^T A^T: N takes the 64 rows of a wgmma, M its columns, which may be as few as 8. D is
// then column-major to the kernel, and lies in memory as before.
// An epilogue like E that adds to what is in memory, instead of overwriting it (TMA's reduction).
template <class E>
struct AddingEpilogue;
template <class Policy, class Cta, class Epi, class C, class StrideC, class D, class StrideD, class Fusion, class LoadC,
          class SmemC, class ReadC, class Store, class... Rest>
struct AddingEpilogue<cutlass::epilogue::collective::CollectiveEpilogue<Policy, Cta, Epi, C, StrideC, D, StrideD, Fusion,
                                                                        LoadC, SmemC, ReadC, Store, Rest...>> {
  using type = cutlass::epilogue::collective::CollectiveEpilogue<Policy, Cta, Epi, C, StrideC, D, StrideD, Fusion, LoadC,
                                                                 SmemC, ReadC, cute::SM90_TMA_REDUCE_ADD, Rest...>;
};

// `Adding`: threadblocks that share the K of a tile add their parts to D, in whatever order: sums of s32 are exact. They are
// the batches of a batched product, all of which have the same D.
template <class Mainloop, class Tile, class Cluster, class Schedule, class Scheduler, bool Swapped, bool Adding = false>
struct Sm90 {
  using LayoutD = std::conditional_t<Swapped, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>;
  using Storing = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, int32_t, int32_t, void, LayoutD, 4, int32_t, LayoutD, 4,
      typename Schedule::Epilogue>::CollectiveOp;
  template <bool Add, class E>
  struct Choose { using type = E; };
  template <class E>
  struct Choose<true, E> : AddingEpilogue<E> {};
  using Epilogue = typename Choose<Adding, Storing>::type;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue, Scheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  static constexpr bool kSwapped = Swapped, kAdding = Adding;
};

// `k` in bytes. `splits` are the threadblocks that share a tile; 1 is stream-K where the scheduler is, else nothing.
template <class S>
int launch_sm90(const ta_gemm* g, int k, int splits, int launches, cudaStream_t stream) {
  using Gemm = typename S::Gemm;
  using Kernel = typename S::Kernel;
  const int m = S::kSwapped ? g->n : g->m, n = S::kSwapped ? g->m : g->n;
  auto* a = static_cast<const int8_t*>(S::kSwapped ? g->b : g->a);
  auto* b = static_cast<const int8_t*>(S::kSwapped ? g->a : g->b);
  static const int sms = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
  typename Kernel::StrideA lda{};
  typename Kernel::StrideB ldb{};
  typename Kernel::StrideD ldd{};
  cute::get<0>(lda) = cute::get<0>(ldb) = k;
  cute::get<S::kSwapped ? 1 : 0>(ldd) = g->n;
  const int batches = S::kAdding ? splits : 1;
  cute::get<2>(lda) = cute::get<2>(ldb) = k / batches;  // how far the parts of K are apart
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k / batches, batches},
                                     {a, lda, b, ldb}, {{1, 0}, nullptr, {}, g->d, ldd}, {0, sms}};
  if constexpr (std::is_same_v<typename Kernel::TileSchedulerTag, cutlass::gemm::StreamKScheduler>) {
    using Mode = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams::DecompositionMode;
    arguments.scheduler.splits = splits;
    arguments.scheduler.decomposition_mode = splits > 1 ? Mode::SplitK : Mode::StreamK;
  }
  if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return 1;
  void* partials = nullptr;
  if (const auto bytes = int64_t(Gemm::get_workspace_size(arguments))) {
    partials = workspace<kPartialsBytes>(bytes);
    if (!partials) return 1;
  }
  const size_t output_bytes = S::kAdding ? size_t(g->m) * g->n * 4 : 0;
  Gemm gemm;
  if (gemm.initialize(arguments, partials, stream) != cutlass::Status::kSuccess) return 2;
  for (int i = 0; i < launches; ++i) {
    // clears the barriers, which a launch leaves as they are
    if (i && Kernel::initialize_workspace(arguments, partials, stream) != cutlass::Status::kSuccess) return 2;
    if (output_bytes && cudaMemsetAsync(g->d, 0, output_bytes, stream) != cudaSuccess) return 2;
    if (gemm.run(stream) != cutlass::Status::kSuccess) return 2;
  }
  return 0;
}

}  // namespace tilearena
