// What is opened once for all problems: the partition, the stream, the clock, and the memory.
#pragma once
#include "abi.h"
#include "clock.cuh"
#include "cublaslt.cuh"
#include "memory.cuh"
#include "partition.cuh"

#include <set>

namespace tilearena {

constexpr int64_t kGuardBytes = 4096;
constexpr int kMaxWeights = 1 << 20;
constexpr int kThreads = 256;
constexpr int kAttempts = 3;  // of what a hold that expired has spoiled
constexpr int kSlots = 2;     // problems that are under way at the same time

// A context of the driver with what lives in it, and a stream on it.
struct Stream {
  Partition partition;  // first, so that it is the last to go
  cudaStream_t stream = nullptr;
  ~Stream() {
    if (stream) cudaStreamDestroy(stream);
  }
};

struct Context : Stream {
  CublasLt cublaslt;
  Clock clock;
  RingMemory operands, outputs;
  Buffer<uint64_t> weights, x, constant;
  Buffer<uint64_t> y[kSlots];
  Verdicts verdicts[kSlots];
  int64_t overhead_ns = 0;  // what an interval adds to the launches in it
  std::set<int> loaded;     // entries that were launched before

  explicit Context(const ta_options& o) {
    TA_CHECK(cudaSetDevice(o.ordinal));
    if (o.sm_count > 0) partition.open(o.ordinal, o.sm_count);
    TA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    set_aside(o);
    load_kernels();
    clock.open(stream);
    bool expired = true;
    for (int attempt = 0; attempt < kAttempts && expired; ++attempt) overhead_ns = clock.overhead_ns(&expired);
    if (expired) fail("launching took longer than 0.5 s; the machine is overloaded");
    if (o.cublaslt) cublaslt.open(o.cublaslt, o.sm_count);
    TA_CHECK(cudaStreamSynchronize(stream));
  }

 private:
  void set_aside(const ta_options& o) {
    int l2 = 0;
    TA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, o.ordinal));
    const int64_t idle = round_up(int64_t(l2 * o.l2_multiple), kAlign);
    operands.open(o.operand_bytes + 2 * kAlign, idle);
    outputs.open(o.output_bytes + 2 * kGuardBytes, idle);
    weights.reserve(kMaxWeights), constant.reserve(1);
    auto words = reinterpret_cast<uint64_t*>(operands.memory.data);
    fill_random<<<1024, kThreads, 0, stream>>>(words, operands.ring.size() / 8, o.seed);
    fill_random<<<1024, kThreads, 0, stream>>>(weights.data, kMaxWeights, ~o.seed);
    TA_CHECK(cudaGetLastError());
  }
  // A kernel's first launch loads it, which may wait for the stream, and so must not happen while that is held.
  static void load_kernels() {
    const void* kernels[] = {
        (const void*)do_nothing,        (const void*)spoil_rows,        (const void*)check_rows,
        (const void*)times_weights<8>,  (const void*)times_weights<4>,  (const void*)times_weights<1>,
        (const void*)times_vector<8>,   (const void*)times_vector<4>,   (const void*)times_vector<1>,
        (const void*)check_elements<8>, (const void*)check_elements<4>, (const void*)check_elements<1>,
        (const void*)xor_weights,
    };
    cudaFuncAttributes attributes;
    for (const void* kernel : kernels) TA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  }
};

}  // namespace tilearena
