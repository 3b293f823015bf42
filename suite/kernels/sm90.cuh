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

// TMA's reduction, issued by one lane. All lanes of a warp issue the epilogue's store: what repeats a store does no harm, but
// each lane would add.
struct AddOnce {};

}  // namespace tilearena

namespace cute {

template <class Bits, class Aux>
struct Copy_Traits<tilearena::AddOnce, Bits, Aux> : Copy_Traits<SM90_TMA_REDUCE_ADD, Bits, Aux> {
  template <class TS, class LS, class TD, class LD>
  CUTE_HOST_DEVICE friend void copy_unpack(Copy_Traits const& traits, Tensor<TS, LS> const& from, Tensor<TD, LD>& to) {
    if (elect_one_sync()) copy_unpack(static_cast<Copy_Traits<SM90_TMA_REDUCE_ADD, Bits, Aux> const&>(traits), from, to);
  }
};

}  // namespace cute

namespace tilearena {

// An epilogue like E that adds to what is in memory, instead of overwriting it. All batches have the same D: static, the
// stride 0 between them keeps them out of TMA's descriptor.
template <class E>
struct AddingEpilogue;
template <class Policy, class Cta, class Epi, class C, class StrideC, class D, class StrideD, class Fusion, class LoadC,
          class SmemC, class ReadC, class Store, class... Rest>
struct AddingEpilogue<cutlass::epilogue::collective::CollectiveEpilogue<Policy, Cta, Epi, C, StrideC, D, StrideD, Fusion,
                                                                        LoadC, SmemC, ReadC, Store, Rest...>> {
  using SameD = decltype(cute::replace<2>(StrideD{}, Int<0>{}));
  using type = cutlass::epilogue::collective::CollectiveEpilogue<Policy, Cta, Epi, C, StrideC, D, SameD, Fusion, LoadC,
                                                                 SmemC, ReadC, AddOnce, Rest...>;
};

// A main loop like Base over one part of K. A batch is a part: all of them read the same A and B, each from its first step on,
// and beyond the end of K TMA reads zeros.
template <class Base>
struct PartOfK : Base {
  // args.dA: rows follow one another, so their distance is the whole K.
  template <class Problem>
  static typename Base::Params to_underlying_arguments(Problem const& problem, typename Base::Arguments const& args, void* w) {
    auto [m, n, part, parts] = problem;
    return Base::to_underlying_arguments(cute::make_shape(m, n, int(cute::get<0>(args.dA)), 1), args, w);
  }
  template <class Inputs, class Iterator, class Coord>
  CUTLASS_DEVICE void load(typename Base::Params const& params, typename Base::MainloopPipeline pipeline,
                           typename Base::PipelineState write, Inputs const& inputs, Coord const& tile, Iterator step,
                           int steps, int thread, uint32_t rank, typename Base::TensorStorage& shared) {
    auto [m, n, k, part] = tile;
    step.coord += part * steps;
    Base::load(params, pipeline, write, inputs, cute::make_coord(m, n, k, 0), step, steps, thread, rank, shared);
  }
};

// Swapped, the kernel computes D^T = B^T A^T: N takes the 64 rows of a wgmma, M its columns, which may be as few as 8. D is
// then column-major to the kernel, and lies in memory as before.
//
// `Adding`: threadblocks that share the K of a tile add their parts to D, in whatever order: sums of s32 are exact.
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
  using Loop = std::conditional_t<Adding, PartOfK<Mainloop>, Mainloop>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Loop, Epilogue, Scheduler>;
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
  constexpr int kStep = cute::size<2>(typename Kernel::TileShape{});
  const int steps = (k + kStep - 1) / kStep, part = S::kAdding ? (steps + batches - 1) / batches * kStep : k;
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm, {m, n, part, batches},
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
