// Device memory that problems take turns in: rings of it, buffers that grow, and the checks' verdicts.
#pragma once
#include "exact.cuh"
#include "failure.cuh"
#include "ring.h"

#include <utility>

namespace tilearena {

constexpr int64_t kAlign = 256;

inline int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Grows by letting go of what it held; that waits for the device, so not while the stream is held.
template <class T>
struct Buffer {
  T* data = nullptr;
  int64_t capacity = 0;
  ~Buffer() { cudaFree(data); }
  void reserve(int64_t needed) {
    if (needed <= capacity) return;
    TA_CHECK(cudaFree(std::exchange(data, nullptr)));
    capacity = 0;
    TA_CHECK(cudaMalloc(&data, needed * sizeof(T)));
    capacity = needed;
  }
};

// A ring of device memory that hands out slices.
struct RingMemory {
  Ring ring;
  Buffer<char> memory;
  void open(int64_t largest, int64_t idle) {
    ring = Ring(round_up(largest, kAlign), idle);
    memory.reserve(ring.size());
  }
  char* slice(int64_t bytes) {
    bytes = round_up(bytes, kAlign);
    if (bytes > ring.largest()) fail("a problem is larger than the memory that was set aside for it", cudaErrorMemoryAllocation);
    return memory.data + ring.slice(bytes);
  }
};

// What a problem's checks found: written on the device, and copied behind all that was enqueued before.
class Verdicts {
 public:
  ~Verdicts() {
    cudaFreeHost(host_);
    if (copied_) cudaEventDestroy(copied_);
  }
  void reserve(int count) {
    if (!copied_) TA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
    if (count <= device_.capacity) return;
    TA_CHECK(cudaFreeHost(std::exchange(host_, nullptr)));
    TA_CHECK(cudaHostAlloc(&host_, count * sizeof(Verdict), cudaHostAllocDefault));
    device_.reserve(count);
  }
  Verdict* device(int i) { return device_.data + i; }
  void clear(cudaStream_t stream) { TA_CHECK(cudaMemsetAsync(device_.data, 0, bytes(), stream)); }
  void copy(cudaStream_t stream) {
    TA_CHECK(cudaMemcpyAsync(host_, device_.data, bytes(), cudaMemcpyDeviceToHost, stream));
    TA_CHECK(cudaEventRecord(copied_, stream));
  }
  const Verdict* wait() {
    TA_CHECK(cudaEventSynchronize(copied_));
    return host_;
  }

 private:
  size_t bytes() const { return device_.capacity * sizeof(Verdict); }

  Buffer<Verdict> device_;
  Verdict* host_ = nullptr;
  cudaEvent_t copied_ = nullptr;
};

}  // namespace tilearena
