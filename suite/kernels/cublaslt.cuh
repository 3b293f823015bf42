// cuBLASLt's int8 product, D (s32) = A x B, with the first answer of its heuristic: what the vendor's library would run.
//
// The library is loaded at run time and its headers are not needed to build: the few types and numbers of its C interface
// that are used here are declared below as cublasLt.h (CUDA 12 and 13) has them.
#pragma once
#include "abi.h"
#include "failure.cuh"

#include <dlfcn.h>

namespace tilearena {

class CublasLt {
 public:
  // cublasLtMatmul's workspace; the size that the library's documentation recommends for Hopper.
  static constexpr size_t kWorkspaceBytes = 32 << 20;

  // `sm_count` > 0: the library is told that it has so many SMs.
  void open(const char* path, int sm_count) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(std::string("cuBLASLt cannot be loaded: ") + dlerror());
    load(library, version_, "cublasLtGetVersion");
    load(library, create_, "cublasLtCreate");
    load(library, destroy_, "cublasLtDestroy");
    load(library, desc_create_, "cublasLtMatmulDescCreate");
    load(library, desc_set_, "cublasLtMatmulDescSetAttribute");
    load(library, layout_create_, "cublasLtMatrixLayoutCreate");
    load(library, layout_destroy_, "cublasLtMatrixLayoutDestroy");
    load(library, preference_create_, "cublasLtMatmulPreferenceCreate");
    load(library, preference_set_, "cublasLtMatmulPreferenceSetAttribute");
    load(library, heuristic_, "cublasLtMatmulAlgoGetHeuristic");
    load(library, matmul_, "cublasLtMatmul");
    const int transposed = 1;                                     // CUBLAS_OP_T
    const uint64_t workspace_bytes = kWorkspaceBytes;
    check(create_(&handle_), "cublasLtCreate");
    check(desc_create_(&desc_, 72, kS32), "cublasLtMatmulDescCreate");  // CUBLAS_COMPUTE_32I
    check(desc_set_(desc_, 3, &transposed, sizeof transposed), "cublasLtMatmulDescSetAttribute");  // ..._TRANSA
    if (sm_count > 0) check(desc_set_(desc_, 15, &sm_count, sizeof sm_count), "cublasLtMatmulDescSetAttribute");  // ..._SM_COUNT_TARGET
    check(preference_create_(&preference_), "cublasLtMatmulPreferenceCreate");
    check(preference_set_(preference_, 1, &workspace_bytes, sizeof workspace_bytes),  // ..._MAX_WORKSPACE_BYTES
          "cublasLtMatmulPreferenceSetAttribute");
    TA_CHECK(cudaMalloc(&workspace_, kWorkspaceBytes));
  }
  ~CublasLt() {
    forget();
    cudaFree(workspace_);
    if (handle_) destroy_(handle_);
  }
  int64_t version() const { return handle_ ? int64_t(version_()) : 0; }

  // As ta_launch; what the heuristic answers is kept for the next call with the same shape. `error` is cuBLAS's status.
  int launch(const ta_gemm& g, int launches, cudaStream_t stream, int64_t* error) {
    if (!handle_) return 1;
    // Column-major, as the library sees it: D' (n x m) = B' (k x n, transposed) x A' (k x m).
    if (g.m != m_ || g.n != n_ || g.k != k_) *error = plan(g.m, g.n, g.k);
    if (*error) return 2;
    if (!found_) return 1;
    const int32_t one = 1, zero = 0;
    for (int i = 0; i < launches; ++i) {
      *error = matmul_(handle_, desc_, &one, g.b, b_, g.a, a_, &zero, g.d, d_, g.d, d_, &best_.algorithm, workspace_,
                       kWorkspaceBytes, stream);
      if (*error) return 2;
    }
    return 0;
  }

 private:
  struct Algorithm { uint64_t data[8]; };                         // cublasLtMatmulAlgo_t
  struct Answer {                                                 // cublasLtMatmulHeuristicResult_t
    Algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
  };
  static constexpr int kS8 = 3, kS32 = 10;                        // CUDA_R_8I, CUDA_R_32I

  // Asks the heuristic; a status of cuBLAS where it cannot be asked. That it has no answer is none.
  int plan(int m, int n, int k) {
    forget();
    int status = layout_create_(&b_, kS8, k, n, k);
    if (!status) status = layout_create_(&a_, kS8, k, m, k);
    if (!status) status = layout_create_(&d_, kS32, n, m, n);
    if (status) return status;
    m_ = m, n_ = n, k_ = k;
    int count = 0;
    status = heuristic_(handle_, desc_, b_, a_, d_, d_, preference_, 1, &best_, &count);
    found_ = status == 0 && count == 1 && best_.state == 0;
    return 0;
  }
  void forget() {
    for (void** layout : {&a_, &b_, &d_}) {
      if (*layout) layout_destroy_(*layout);
      *layout = nullptr;
    }
    m_ = 0, found_ = false;
  }
  template <class F>
  static void load(void* library, F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (!function) fail(std::string("cuBLASLt has no ") + name);
  }
  static void check(int status, const char* call) {
    if (status) fail(std::string(call) + " failed (status " + std::to_string(status) + ")");
  }

  size_t (*version_)() = nullptr;
  int (*create_)(void**) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*desc_create_)(void**, int compute, int scale) = nullptr;
  int (*desc_set_)(void*, int attribute, const void*, size_t) = nullptr;
  int (*layout_create_)(void**, int type, uint64_t rows, uint64_t columns, int64_t pitch) = nullptr;
  int (*layout_destroy_)(void*) = nullptr;
  int (*preference_create_)(void**) = nullptr;
  int (*preference_set_)(void*, int attribute, const void*, size_t) = nullptr;
  int (*heuristic_)(void*, void*, void*, void*, void*, void*, void*, int wanted, Answer*, int* count) = nullptr;
  int (*matmul_)(void*, void*, const void* alpha, const void*, void*, const void*, void*, const void* beta, const void*,
                 void*, void*, void*, const Algorithm*, void* workspace, size_t, cudaStream_t) = nullptr;

  void *handle_ = nullptr, *desc_ = nullptr, *preference_ = nullptr, *workspace_ = nullptr;
  void *a_ = nullptr, *b_ = nullptr, *d_ = nullptr;
  int m_ = 0, n_ = 0, k_ = 0;
  bool found_ = false;
  Answer best_{};
};

}  // namespace tilearena
