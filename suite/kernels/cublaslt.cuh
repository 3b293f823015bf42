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
    for (Plan& plan : plans_) forget(plan);
    cudaFree(workspace_);
    if (handle_) destroy_(handle_);  // the descriptors of the product and the preference go with the process
  }
  int64_t version() const { return handle_ ? int64_t(version_()) : 0; }

  // As ta_launch; what the heuristic answers is kept for the next calls with the same shape. `error` is cuBLAS's status.
  int launch(const ta_gemm& g, int launches, cudaStream_t stream, int64_t* error) {
    if (!handle_) return 1;
    const Plan& p = plan(g.m, g.n, g.k, error);
    if (*error) return 2;
    if (!p.found) return 1;
    const int32_t one = 1, zero = 0;
    for (int i = 0; i < launches; ++i) {
      *error = matmul_(handle_, desc_, &one, g.b, p.b, g.a, p.a, &zero, g.d, p.d, g.d, p.d, &p.best.algorithm, workspace_,
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

  // What the heuristic said about a shape. Column-major, as the library sees it: D' (n x m) = B' (k x n, transposed) x A'
  // (k x m).
  struct Plan {
    int m = 0, n = 0, k = 0;
    void *a = nullptr, *b = nullptr, *d = nullptr;
    bool found = false;
    Answer best{};
  };

  // The plan for a shape, kept or new; `error` is a status of cuBLAS where the heuristic cannot be asked. That it has no
  // answer is none.
  Plan& plan(int m, int n, int k, int64_t* error) {
    for (Plan& known : plans_)
      if (known.m == m && known.n == n && known.k == k) return known;
    Plan& made = plans_[oldest_];
    oldest_ = 1 - oldest_;
    forget(made);
    int status = layout_create_(&made.b, kS8, k, n, k);
    if (!status) status = layout_create_(&made.a, kS8, k, m, k);
    if (!status) status = layout_create_(&made.d, kS32, n, m, n);
    *error = status;
    if (status) return made;
    made.m = m, made.n = n, made.k = k;
    int count = 0;
    status = heuristic_(handle_, desc_, made.b, made.a, made.d, made.d, preference_, 1, &made.best, &count);
    made.found = status == 0 && count == 1 && made.best.state == 0;
    return made;
  }
  void forget(Plan& plan) {
    for (void* layout : {plan.a, plan.b, plan.d})
      if (layout) layout_destroy_(layout);
    plan = Plan{};
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
  Plan plans_[2];  // of the problems that take turns
  int oldest_ = 0;
};

}  // namespace tilearena
