// The C interface between a kernel library and whoever loads it, and between the harness and one template.
// Plain C types only: the library is loaded with ctypes from any Python.
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

#define TA_ABI_VERSION 2

// D[m, n] (s32, row-major) = A[m, k] (row-major) x B[k, n] (column-major); both operands are contiguous along k.
struct ta_gemm {
  int m, n, k;
  const void* a;
  const void* b;
  int32_t* d;
};

// Enqueues one product. 0: enqueued; 1: the template cannot implement this problem; 2: the launch failed.
typedef int (*ta_launch)(const ta_gemm*, cudaStream_t);

struct ta_entry {
  const char* id;
  ta_launch launch;
};

// Enqueues one product from outside the library (a vendor library, say) on the harness's stream.
typedef int (*ta_external)(const void* a, const void* b, void* d, int m, int n, int k, void* stream);

enum ta_outcome {
  TA_OK = 0,
  TA_NOT_IMPLEMENTED = 1,  // the template refused the problem
  TA_LAUNCH_FAILED = 2,
  TA_WRONG_ROWS = 3,       // D * r != A * (B * r) in some row, before timing
  TA_GUARD_TOUCHED = 4,    // something was written outside D
  TA_WRONG_ELEMENT = 5,    // differs from the direct reference (small problems)
  TA_WRONG_AFTER = 6,      // the output of the last timed launch is wrong
};

// One problem, measured with several candidates that take turns.
struct ta_job {
  int bits;                // 8, 4 or 1 per element
  int xor_popc;            // b1 only: 1 for xor, 0 for and
  int m, n, k;
  int cold;                // 1: every launch on operands that have left the L2; 0: the same operands
  int rounds;
  int candidates;
  const int* entry;        // [candidates] index into the library's table, -1: `external`
  const int* order;        // [rounds * candidates] a permutation of the candidates for each round
  int64_t hot_fill_ns;     // hot: back-to-back launches of the fastest candidate fill this; all take as many
  int hot_max_launches;
  int64_t reference_macs;  // problems up to this size are also compared with a direct reference
  uint64_t seed;           // of the Freivalds weights
  ta_external external;
};

struct ta_results {
  int64_t* elapsed_ns;     // [candidates * rounds] for `launches` launches
  int* launches;           // [candidates]
  int* outcome;            // [candidates] ta_outcome
  int64_t* detail;         // [candidates] first wrong row or element, or the CUDA error
};
