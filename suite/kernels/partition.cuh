// A partition of the SMs of a GPU: a CUDA green context (driver API since CUDA 12.4), current in the calling thread.
// Nothing of the card's settings is changed; other processes see the whole card as before.
#pragma once
#include "failure.cuh"

#include <cuda.h>

namespace tilearena {

class Partition {
 public:
  // Splits `sm_count` SMs off and makes contexts of this thread run on them.
  void open(int ordinal, int sm_count) {
    auto get_resource = entry<CUresult (*)(CUdevice, CUdevResource*, CUdevResourceType)>("cuDeviceGetDevResource");
    auto split = entry<CUresult (*)(CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*, unsigned, unsigned)>(
        "cuDevSmResourceSplitByCount");
    auto describe = entry<CUresult (*)(CUdevResourceDesc*, CUdevResource*, unsigned)>("cuDevResourceGenerateDesc");
    auto create = entry<CUresult (*)(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>("cuGreenCtxCreate");
    auto convert = entry<CUresult (*)(CUcontext*, CUgreenCtx)>("cuCtxFromGreenCtx");
    auto make_current = entry<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    destroy_ = entry<CUresult (*)(CUgreenCtx)>("cuGreenCtxDestroy");

    CUdevResource all{}, part{}, rest{};
    unsigned groups = 1;
    check(get_resource(ordinal, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    check(split(&part, &groups, &all, &rest, 0, unsigned(sm_count)), "cuDevSmResourceSplitByCount");
    if (groups != 1 || int(part.sm.smCount) != sm_count)
      fail("a partition of " + std::to_string(sm_count) + " of " + std::to_string(all.sm.smCount) +
           " SMs cannot be had; the next that can has " + std::to_string(part.sm.smCount));
    CUdevResourceDesc description = nullptr;
    CUcontext context = nullptr;
    check(describe(&description, &part, 1), "cuDevResourceGenerateDesc");
    check(create(&green_, description, ordinal, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
    check(convert(&context, green_), "cuCtxFromGreenCtx");
    check(make_current(context), "cuCtxSetCurrent");
  }
  ~Partition() {
    if (green_) destroy_(green_);
  }

 private:
  // The driver's library is not linked: a kernel library must also load where there is none.
  template <class F>
  static F entry(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 12040, cudaEnableDefault, &result);
#else
    cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    if (code != cudaSuccess || result != cudaDriverEntryPointSuccess)
      fail(std::string("this driver has no ") + name + "; SM partitions need one of CUDA 12.4 or newer");
    return reinterpret_cast<F>(found);
  }
  static void check(CUresult code, const char* call) {
    if (code != CUDA_SUCCESS) fail(std::string(call) + " failed (CUresult " + std::to_string(int(code)) + ")");
  }

  CUgreenCtx green_ = nullptr;
  CUresult (*destroy_)(CUgreenCtx) = nullptr;
};

}  // namespace tilearena
