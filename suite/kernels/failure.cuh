// Errors of the CUDA runtime as exceptions inside the library, and as a sentence for ta_error().
#pragma once
#include <cuda_runtime_api.h>
#include <string>

namespace tilearena {

inline thread_local std::string error_text;

struct Failure {
  cudaError_t code;
};

[[noreturn]] inline void fail(std::string text, cudaError_t code = cudaErrorUnknown) {
  error_text = std::move(text);
  throw Failure{code};
}

#define TA_CHECK(call)                                                                                        \
  do {                                                                                                        \
    cudaError_t code_ = (call);                                                                               \
    if (code_ != cudaSuccess)                                                                                 \
      ::tilearena::fail(std::string(cudaGetErrorName(code_)) + " (" + cudaGetErrorString(code_) + ") in " #call, code_); \
  } while (0)

}  // namespace tilearena
