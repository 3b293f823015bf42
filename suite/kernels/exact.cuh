// Proof of exactness: every element of D enters a Freivalds check with 64-bit random weights, wrapping in uint64.
//
// D r = A (B r) holds mod 2^64 for a correct product. A wrong row of D differs by e with |e_j| < 2^32, so some e_j r_j
// has at most 31 trailing zero bits to spare and a uniform r_j cancels it with probability <= 2^-33 (Freivalds 1977).
// Additions in uint64 commute exactly, so atomics leave no room for rounding.
#pragma once
#include <stdint.h>

namespace tilearena {

constexpr uint32_t kPoison = 0xA5A5A5A5u;

// splitmix64 (Steele, Lea, Flood 2014): a counter-based generator good enough for operands and weights.
__host__ __device__ inline uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__global__ void fill_random(uint64_t* out, int64_t words, uint64_t seed) {
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step)
    out[i] = splitmix64(seed + uint64_t(i) * 0xD1342543DE82EF95ull);
}

// Element e of a 32-bit word: two's complement for 8 and 4 bits, 0 or 1 for 1 bit.
template <int Bits>
__device__ inline int64_t element(uint32_t word, int e) {
  if (Bits == 1) return (word >> e) & 1;
  return int32_t(word << (32 - Bits * (e + 1))) >> (32 - Bits);
}

__device__ inline uint64_t block_sum(uint64_t value) {
  __shared__ uint64_t partial[32];
  for (int offset = 16; offset; offset >>= 1) value += __shfl_down_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
  if (threadIdx.x < 32)
    for (int offset = 16; offset; offset >>= 1) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;  // in thread 0
}

// x[k] += sum over a chunk of n of B[k, n] r[n]; x starts at zero. One thread a 32-bit word along k.
template <int Bits>
__global__ void times_weights(const uint32_t* b, const uint64_t* r, uint64_t* x, int n, int words, int rows) {
  int word = blockIdx.x * blockDim.x + threadIdx.x;
  if (word >= words) return;
  constexpr int kElements = 32 / Bits;
  uint64_t sum[kElements] = {};
  int end = min(n, (int(blockIdx.y) + 1) * rows);
  for (int j = blockIdx.y * rows; j < end; ++j) {
    uint32_t packed = b[int64_t(j) * words + word];
    uint64_t weight = r[j];
#pragma unroll
    for (int e = 0; e < kElements; ++e) sum[e] += uint64_t(element<Bits>(packed, e)) * weight;
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e)
    atomicAdd(reinterpret_cast<unsigned long long*>(x) + int64_t(word) * kElements + e, sum[e]);
}

// popc(a xor b) = popc(a) + popc(b) - 2 popc(a and b), so xor is the same form with x' = R - 2 x (R the sum of all
// weights) and the constant sum of x added to every row.
__global__ void xor_weights(const uint64_t* r, uint64_t* x, uint64_t* constant, int n, int k) {
  uint64_t mine = 0, all = 0;
  for (int j = threadIdx.x; j < n; j += blockDim.x) mine += r[j];
  __shared__ uint64_t total;
  mine = block_sum(mine);
  if (threadIdx.x == 0) total = mine;
  __syncthreads();
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    all += x[i];
    x[i] = total - 2 * x[i];
  }
  __syncthreads();
  all = block_sum(all);
  if (threadIdx.x == 0) *constant = all;
}

// y[i] = sum over k of A[i, k] x[k] + constant. One block a row.
template <int Bits>
__global__ void times_vector(const uint32_t* a, const uint64_t* x, const uint64_t* constant, uint64_t* y, int words) {
  constexpr int kElements = 32 / Bits;
  const uint32_t* row = a + int64_t(blockIdx.x) * words;
  uint64_t sum = 0;
  for (int word = threadIdx.x; word < words; word += blockDim.x) {
    uint32_t packed = row[word];
#pragma unroll
    for (int e = 0; e < kElements; ++e) sum += uint64_t(element<Bits>(packed, e)) * x[int64_t(word) * kElements + e];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum + *constant;
}

struct Fault {
  unsigned long long count, not_first;  // complement of the smallest offending index
};

struct Verdict {  // starts as zeros
  Fault rows, guards, elements;
};

__device__ inline void blame(Fault* fault, unsigned long long index) {
  atomicAdd(&fault->count, 1ull);
  atomicMax(&fault->not_first, ~index);
}

// Both guard bands must still hold the poison.
__device__ inline void check_guards(const uint32_t* before, const uint32_t* after, int words, Verdict* verdict) {
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    if (before[i] != kPoison || after[i] != kPoison) blame(&verdict->guards, i);
}

// Compares D r with y, one block a row; and where there is one block more, guard bands of so many words on both sides of D.
__global__ void check_rows(const int32_t* d, const uint64_t* r, const uint64_t* y, int m, int n, int guard_words,
                           Verdict* verdict) {
  const int32_t* row = d + int64_t(blockIdx.x) * n;
  if (blockIdx.x == m) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(d);
    return check_guards(words - guard_words, words + int64_t(m) * n, guard_words, verdict);
  }
  uint64_t sum = 0;
  for (int j = threadIdx.x; j < n; j += blockDim.x) sum += uint64_t(int64_t(row[j])) * r[j];
  sum = block_sum(sum);
  if (threadIdx.x == 0 && sum != y[blockIdx.x]) {
    blame(&verdict->rows, blockIdx.x);
  }
}

// Poisons one element of each row, each in another column. Not by xor: twice would be the right value again.
__global__ void spoil_rows(int32_t* d, int m, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m) return;
  uint32_t* element = reinterpret_cast<uint32_t*>(d) + int64_t(i) * n + splitmix64(i) % n;
  *element += kPoison;
}

// Direct reference: one thread an element of D.
template <int Bits>
__global__ void check_elements(const uint32_t* a, const uint32_t* b, const int32_t* d, int m, int n, int words,
                               int xor_popc, Verdict* verdict) {
  int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= int64_t(m) * n) return;
  const uint32_t *row = a + index / n * words, *column = b + index % n * words;
  int32_t sum = 0;
  for (int word = 0; word < words; ++word) {
    if (Bits == 1) {
      sum += __popc(xor_popc ? row[word] ^ column[word] : row[word] & column[word]);
    } else {
      for (int e = 0; e < 32 / Bits; ++e) sum += int32_t(element<Bits>(row[word], e) * element<Bits>(column[word], e));
    }
  }
  if (sum != d[index]) {
    blame(&verdict->elements, index);
  }
}

}  // namespace tilearena
