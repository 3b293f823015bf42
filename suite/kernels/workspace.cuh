// Device memory that kernels which share the work on one tile meet in. One of each per library and GPU: launches follow
// each other on one stream.
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

namespace tilearena {

// Serial split-K: one semaphore for each tile of D. Zero before a launch, and left at zero by it.
constexpr int64_t kSemaphoreBytes = int64_t(4) << 20;
// Stream-K and split-K of CUTLASS 3.x: partial sums, and barriers that are cleared before every launch.
constexpr int64_t kPartialsBytes = int64_t(256) << 20;
constexpr int kMaxDevices = 64;

// Allocated and cleared at the first call on a GPU, which is a launch that is not timed; null if that fails.
template <int64_t Bytes>
void* workspace(int64_t needed) {
  static void* memory[kMaxDevices] = {};
  int device = 0;
  if (needed > Bytes || cudaGetDevice(&device) != cudaSuccess || device >= kMaxDevices) return nullptr;
  if (!memory[device]) {
    void* fresh = nullptr;
    if (cudaMalloc(&fresh, Bytes) != cudaSuccess) return nullptr;
    if (cudaMemset(fresh, 0, Bytes) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return nullptr;
    memory[device] = fresh;
  }
  return memory[device];
}

}  // namespace tilearena
