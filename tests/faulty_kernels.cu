// Kernels with one planted fault each, behind the same interface as a template: s8 only, one thread an element of D.
#include "abi.h"

enum Fault { kNone, kWrongElement, kUnwrittenTile, kPastTheEnd, kBeforeTheStart, kSkippedTail, kWrongLater, kStaleLater, kIllegalAddress, kIllegalAddressLater, kHang };

constexpr unsigned long long kHangNs = 60'000'000'000ull;

__global__ void product(const int8_t* a, const int8_t* b, int32_t* d, int m, int n, int k, int fault) {
  int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, last = int64_t(m) * n - 1;
  if (index > last) return;
  // "later": on the larger problem alone
  const bool illegal = fault == kIllegalAddress || (fault == kIllegalAddressLater && m > 100);
  if (illegal && index == 0) *reinterpret_cast<volatile int32_t*>(16) = 1;
  if (fault == kHang && index == 0) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < kHangNs);
  }
  int row = int(index / n), column = int(index % n);
  // a tile in the middle that no thread writes
  if (fault == kUnwrittenTile && row / 16 == m / 32 && column / 16 == n / 32) return;
  int end = fault == kSkippedTail ? k - k % 64 : k;
  int32_t sum = 0;
  for (int i = 0; i < end; ++i) sum += int32_t(a[int64_t(row) * k + i]) * b[int64_t(column) * k + i];
  if (fault == kWrongElement && index == last / 2) sum ^= 1 << 30;
  if (fault == kWrongLater && index == last) sum += 1;
  d[index] = sum;
  if (fault == kPastTheEnd && index == last) d[last + 1] = sum;
  if (fault == kBeforeTheStart && index == 0) d[-1] = sum;
}

static int calls = 0;

template <int F>
int launch_faulty(const ta_gemm* g, int launches, cudaStream_t stream) {
  // "later" faults show only after two calls, which are the proof and, cold, one sample: they test the check that follows the
  // timing
  ++calls;
  bool later = F == kWrongLater || F == kStaleLater;
  if (F == kStaleLater && calls > 2) return 0;
  int fault = later && calls <= 2 ? kNone : F;
  int blocks = int((int64_t(g->m) * g->n + 255) / 256);
  for (int i = 0; i < launches; ++i)
    product<<<blocks, 256, 0, stream>>>(static_cast<const int8_t*>(g->a), static_cast<const int8_t*>(g->b), g->d, g->m,
                                        g->n, g->k, fault);
  return 0;
}

#define FAULTY(name, fault) \
  int ta_launch_##name(const ta_gemm* g, int launches, cudaStream_t s) { return launch_faulty<fault>(g, launches, s); }

extern "C" {
void ta_forget_calls() { calls = 0; }
FAULTY(good, kNone)
FAULTY(wrong_element, kWrongElement)
FAULTY(unwritten_tile, kUnwrittenTile)
FAULTY(past_the_end, kPastTheEnd)
FAULTY(before_the_start, kBeforeTheStart)
FAULTY(skipped_tail, kSkippedTail)
FAULTY(wrong_later, kWrongLater)
FAULTY(stale_later, kStaleLater)
FAULTY(illegal_address, kIllegalAddress)
FAULTY(illegal_address_later, kIllegalAddressLater)
FAULTY(hang, kHang)
int ta_launch_shared_memory(const ta_gemm* g, int, cudaStream_t s) {
  product<<<1, 256, 1 << 20, s>>>(nullptr, nullptr, g->d, 0, 1, 1, kNone);
  return 0;
}
}
