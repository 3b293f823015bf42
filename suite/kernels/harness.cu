// The measuring harness: operands, exactness, and device times of the library's templates, behind a plain C interface.
//
// Cold launches walk through rings of operands and outputs; before a slice comes round again, more than three times the L2
// in other slices was touched. Nothing is flushed. How a time is taken is in clock.cuh, what a problem goes through in
// problem.cuh.
#include "problem.cuh"

#include <memory>
#include <new>

namespace tilearena {
namespace {

constexpr int kAbiVersion = 5;  // of what abi.py declares

struct Harness : Context {
  std::unique_ptr<Problem> problems[kSlots];
  bool failed = false;
  using Context::Context;
};

// Runs what may fail; -1 if it did, now or before: the device failed, and this process must not go on.
template <class F>
int guarded(void* context, F body) {
  Harness& harness = *static_cast<Harness*>(context);
  if (harness.failed) return -1;
  try {
    return body(harness);
  } catch (const Failure&) {
    harness.failed = true;
    harness.clock.abandon();
    return -1;
  }
}

}  // namespace
}  // namespace tilearena

using namespace tilearena;

extern "C" {

int ta_abi_version() { return kAbiVersion; }
int ta_count() { return ta_entry_count; }
const char* ta_id(int index) { return index >= 0 && index < ta_entry_count ? ta_entries[index].id : nullptr; }
const char* ta_error() { return error_text.c_str(); }

// Number of GPUs; -1 where there is no driver or no GPU, with a sentence in ta_error().
int ta_gpus() {
  int count = 0;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0;
  cudaDriverGetVersion(&driver);
  error_text = std::string("no GPU: ") + (driver == 0            ? "no NVIDIA driver is installed"
                                          : code == cudaSuccess ? "no device is visible"
                                                                : cudaGetErrorString(code));
  return -1;
}

// Null on failure. All calls with the context come from the thread that opened it.
void* ta_open(const ta_options* options) {
  if (ta_gpus() < 0) return nullptr;
  try {
    return new (std::nothrow) Harness(*options);
  } catch (const Failure&) {
    cudaGetLastError();
    return nullptr;
  }
}

void ta_close(void* context) { delete static_cast<Harness*>(context); }

// cublasLtGetVersion, 0 where it is not loaded.
int64_t ta_cublaslt_version(void* context) { return static_cast<Harness*>(context)->cublaslt.version(); }

// The calls for a problem, in this order: ta_prove once, ta_begin once, ta_submit and ta_collect in turns. Two problems, of
// slots 0 and 1, may be under way: what is enqueued for one runs while the host waits for the other. All return 0, or -1:
// the device failed, perhaps under the other problem.

// Enqueues the proof of all candidates. What the slot held before is forgotten.
int ta_prove(void* context, int slot, const ta_job* job) {
  return guarded(context, [&](Harness& h) {
    if (h.problems[slot]) h.problems[slot]->settle();
    h.problems[slot].reset();
    h.problems[slot] = std::make_unique<Problem>(h, *job, slot);
    return 0;
  });
}

// Waits for the proof. 1: holds expired every time, so there is no telling how long a launch takes.
int ta_begin(void* context, int slot, const ta_proof* proof) {
  return guarded(context, [&](Harness& h) {
    const bool good = h.problems[slot]->begin();
    h.problems[slot]->report(*proof);
    return good ? 0 : 1;
  });
}

// Enqueues a sample for each turn (an index into the job's candidates).
int ta_submit(void* context, int slot, int turns, const int* turn) {
  return guarded(context, [&](Harness& h) {
    h.problems[slot]->submit(turns, turn);
    return 0;
  });
}

// Waits for the samples. 1: a hold expired, so submit them again.
int ta_collect(void* context, int slot, int64_t* elapsed_ns, const ta_proof* proof) {
  return guarded(context, [&](Harness& h) {
    const bool good = h.problems[slot]->collect(elapsed_ns);
    h.problems[slot]->report(*proof);
    return good ? 0 : 1;
  });
}

// Elapsed time in ns of event pairs with nothing between them, or with launches of a kernel that does nothing. Returns as
// ta_collect.
int ta_empty_intervals(void* context, int launches, int count, int64_t* elapsed_ns) {
  return guarded(context, [&](Harness& h) {
    Section section;
    h.clock.begin(section, true);
    for (int i = 0; i < count; ++i) {
      h.clock.reserve(2 + launches);
      h.clock.start();
      for (int repeat = 0; repeat < launches; ++repeat) do_nothing<<<1, 32, 0, h.stream>>>();
      h.clock.stop(&elapsed_ns[i]);
    }
    TA_CHECK(cudaGetLastError());
    h.clock.wait(section);
    return section.expired ? 1 : 0;
  });
}

}  // extern "C"
