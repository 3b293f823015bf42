// The C interface between a kernel library and whoever loads it, and between the harness and one template.
// Plain C types only: the library is loaded with ctypes from any Python, see abi.py.
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

// D[m, n] (s32, row-major) = A[m, k] (row-major) x B[k, n] (column-major); both operands are contiguous along k.
struct ta_gemm {
  int m, n, k;
  const void* a;
  const void* b;
  int32_t* d;
};

// Enqueues the same product `launches` times. 0: enqueued; 1: the template cannot implement this problem; 2: it failed.
typedef int (*ta_launch)(const ta_gemm*, int launches, cudaStream_t);

struct ta_entry {
  const char* id;
  ta_launch launch;
};

// As ta_launch, from outside the library (a vendor library that Python drives, say) on the harness's stream.
typedef int (*ta_external)(const void* a, const void* b, void* d, int m, int n, int k, int launches, void* stream);

enum ta_outcome {
  TA_OK = 0,
  TA_NOT_IMPLEMENTED = 1,  // the template refused the problem
  TA_LAUNCH_FAILED = 2,
  TA_WRONG_ROWS = 3,       // D * r != A * (B * r) in some row, before timing
  TA_GUARD_TOUCHED = 4,    // something was written outside D
  TA_WRONG_ELEMENT = 5,    // differs from the direct reference (small problems)
  TA_WRONG_AFTER = 6,      // the output of the last timed launch is wrong
};

struct ta_options {
  int ordinal;
  int sm_count;            // > 0: run on a partition of so many SMs (a green context)
  int64_t operand_bytes;   // memory is set aside for problems of at most so many bytes of A and B,
  int64_t output_bytes;    // and so many of D
  double l2_multiple;      // cold operands were last touched so many L2s of traffic ago
  uint64_t seed;           // of the operands
  const char* cublaslt;    // path of the library, or null
};

// An entry of a job that is no index into the library's table.
enum { TA_ENTRY_CUBLASLT = -1, TA_ENTRY_EXTERNAL = -2 };  // externals[i] is TA_ENTRY_EXTERNAL - i

// One problem and the candidates that are timed on it.
struct ta_job {
  int bits;                // 8, 4 or 1 per element
  int xor_popc;            // b1 only: 1 for xor, 0 for and
  int m, n, k;
  int cold;                // 1: every launch on operands that have left the L2; 0: the same operands
  int held;                // 1: the stream is held until a batch is enqueued; 0 for profilers that serialise kernels
  int candidates;
  const int* entry;        // [candidates]
  int64_t hot_fill_ns;     // hot: back-to-back launches of the fastest candidate fill this; all take as many
  int hot_max_launches;
  int launches;            // > 0: so many in one sample instead
  int64_t reference_macs;  // problems up to this size are also compared with a direct reference
  uint64_t seed;           // of the Freivalds weights
  const ta_external* externals;
};

struct ta_proof {
  int* launches;           // [candidates] in one sample
  int* outcome;            // [candidates] ta_outcome
  int64_t* detail;         // [candidates] first wrong row or element, or the error's number
};
