// A wgmma main loop for b1: CUTLASS has the s8 ones alone, the instruction exists for bits too (PTX ISA, wgmma.mma_async).
//
// Eight bits travel as one byte: tiles, TMA and shared memory are those of s8 with K / 8, and 32 bytes of K are the 256 bits
// of one instruction.
#pragma once
#include "sm90.cuh"

namespace tilearena {

// D[64, N] += popc(A[64, 256 bits] and B[N, 256 bits]), both operands in shared memory and contiguous along K.
template <int N>
struct BitMma {
  using DRegisters = void;
  using ARegisters = uint64_t[1];
  using BRegisters = uint64_t[1];
  using CRegisters = uint32_t[N / 2];
  static __device__ void multiply(uint32_t* d, uint64_t a, uint64_t b, int accumulate);
};

#define TA_D4 "%0, %1, %2, %3"
#define TA_D8 TA_D4 ", %4, %5, %6, %7"
#define TA_D16 TA_D8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TA_D24 TA_D16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TA_D32 TA_D24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TA_D64 TA_D32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TA_D96 TA_D64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TA_D128 TA_D96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TA_R4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define TA_R8(i) TA_R4(i), TA_R4(i + 4)
#define TA_R16(i) TA_R8(i), TA_R8(i + 8)
#define TA_R24(i) TA_R16(i), TA_R8(i + 16)
#define TA_R32(i) TA_R16(i), TA_R16(i + 16)
#define TA_R64(i) TA_R32(i), TA_R32(i + 32)
#define TA_R96(i) TA_R64(i), TA_R32(i + 64)
#define TA_R128(i) TA_R64(i), TA_R64(i + 64)
#define TA_BIT_MMA(n, text, registers, a_, b_, accumulate_)                                                              \
  template <>                                                                                                            \
  inline __device__ void BitMma<n>::multiply(uint32_t* d, uint64_t a, uint64_t b, int accumulate) {                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_ ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k256.s32.b1.b1.and.popc {" text "}, " a_ ", " b_ ", p;\n}\n"     \
                 : registers                                                                                             \
                 : "l"(a), "l"(b), "r"(accumulate));                                                                     \
  }
TA_BIT_MMA(8, TA_D4, TA_R4(0), "%4", "%5", "%6")
TA_BIT_MMA(16, TA_D8, TA_R8(0), "%8", "%9", "%10")
TA_BIT_MMA(32, TA_D16, TA_R16(0), "%16", "%17", "%18")
TA_BIT_MMA(48, TA_D24, TA_R24(0), "%24", "%25", "%26")
TA_BIT_MMA(64, TA_D32, TA_R32(0), "%32", "%33", "%34")
TA_BIT_MMA(128, TA_D64, TA_R64(0), "%64", "%65", "%66")
TA_BIT_MMA(192, TA_D96, TA_R96(0), "%96", "%97", "%98")
TA_BIT_MMA(256, TA_D128, TA_R128(0), "%128", "%129", "%130")

// As cutlass/gemm/collective/builders/sm90_gmma_builder.inl composes it for s8, but for the instruction.
template <class Tile, class Cluster, class Schedule, int Stages>
struct BitMainloop {
  static constexpr auto kMajor = cute::GMMA::Major::K;
  static constexpr int kGroups = std::is_same_v<Schedule, Cooperative> ? 2 : 1;
  using M = decltype(cute::get<0>(Tile{}));
  using N = decltype(cute::get<1>(Tile{}));
  using K = decltype(cute::get<2>(Tile{}));
  using Mma = decltype(cute::make_tiled_mma(BitMma<N::value>{}, cute::Layout<Shape<Int<kGroups>, Int<1>, Int<1>>>{}));
  template <class Extent>
  using Smem = decltype(cutlass::gemm::collective::detail::ss_smem_selector<kMajor, int8_t, Extent, K>());
  template <int Mode>
  using Copy = decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(cute::shape<Mode>(Cluster{})));
  using Collective = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<Stages, Cluster, typename Schedule::Mainloop>, Tile, int8_t,
      cutlass::detail::TagToStrideA_t<cutlass::layout::RowMajor>, int8_t,
      cutlass::detail::TagToStrideB_t<cutlass::layout::ColumnMajor>, Mma, Copy<1>, Smem<M>, void, cute::identity, Copy<0>,
      Smem<N>, void, cute::identity>;
};

}  // namespace tilearena

namespace cute {

template <int N>
struct MMA_Traits<tilearena::BitMma<N>> {
  using ValTypeD = int32_t;
  using ValTypeA = int8_t;
  using ValTypeB = int8_t;
  using ValTypeC = int32_t;
  using FrgTypeA = GMMA::smem_desc<GMMA::Major::K>;
  using FrgTypeB = GMMA::smem_desc<GMMA::Major::K>;
  using Shape_MNK = Shape<_64, Int<N>, _32>;
  using ThrID = Layout<_128>;
  using ALayout = GMMA::ABLayout<64, 32>;
  using BLayout = GMMA::ABLayout<N, 32>;
  using CLayout = GMMA::CLayout_64xN<N>;
  GMMA::ScaleOut accumulate_ = GMMA::ScaleOut::One;

  template <class TD, class DLayout, class TA, class LA, class TB, class LB, class TC, class LC>
  friend CUTE_DEVICE constexpr void mma_unpack(MMA_Traits const& traits, Tensor<TD, DLayout>& d, Tensor<TA, LA> const& a,
                                               Tensor<TB, LB> const& b, Tensor<TC, LC> const&) {
    tilearena::BitMma<N>::multiply(&recast<uint32_t>(d)(Int<0>{}), recast<uint64_t>(a)(Int<0>{}),
                                   recast<uint64_t>(b)(Int<0>{}), int(traits.accumulate_));
  }
};

}  // namespace cute
