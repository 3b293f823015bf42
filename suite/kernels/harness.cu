// The measuring harness: operands, exactness, and device times of the library's templates, behind a plain C interface.
//
// Timing: the stream is held by a spinning kernel until a whole batch is enqueued, so host launch cost is not in any
// interval; every sample lies between two events. Cold launches walk through rings of operands and outputs; before a slice
// comes round again, more than three times the L2 in other slices was touched. Nothing is flushed.
#include "abi.h"
#include "exact.cuh"

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

extern "C" const ta_entry ta_entries[];  // generated: the templates that were compiled
extern "C" const int ta_entry_count;

namespace tilearena {
namespace {

thread_local std::string error_text;

struct Failure {
  cudaError_t code;
};

#define TA_CHECK(call)                                                                        \
  do {                                                                                        \
    cudaError_t code_ = (call);                                                               \
    if (code_ != cudaSuccess) {                                                               \
      error_text = std::string(cudaGetErrorName(code_)) + " (" + cudaGetErrorString(code_) + ") in " #call; \
      throw Failure{code_};                                                                   \
    }                                                                                         \
  } while (0)

constexpr int64_t kAlign = 256;
constexpr int64_t kGuardBytes = 4096;
constexpr int kBatch = 384;      // enqueued operations a batch, well below the depth of a launch queue
constexpr int kMaxWeights = 1 << 20;
constexpr int kPilotLaunches = 5;
constexpr int kThreads = 256;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Gate {  // pinned host memory that the spinning kernel watches
  volatile int open;
  volatile int expired;
};

__global__ void hold_stream(Gate* gate, unsigned long long limit_ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  while (!gate->open) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - start > limit_ns) {
      gate->expired = 1;
      return;
    }
  }
}

// A ring of device memory that hands out consecutive slices.
struct Ring {
  char* base = nullptr;
  int64_t size = 0, cursor = 0;
  char* slice(int64_t bytes) {
    bytes = round_up(bytes, kAlign);
    if (bytes > size) {
      error_text = "a problem is larger than the memory that was set aside for it";
      throw Failure{cudaErrorMemoryAllocation};
    }
    if (cursor + bytes > size) cursor = 0;
    char* out = base + cursor;
    cursor += bytes;
    return out;
  }
};

struct Context {
  cudaStream_t stream = nullptr;
  Ring operands, outputs;
  uint64_t *weights = nullptr, *x = nullptr, *constant = nullptr, *y = nullptr;
  int64_t x_capacity = 0, y_capacity = 0;
  Verdict* verdicts = nullptr;
  int verdict_capacity = 0;
  Gate* gate = nullptr;
  std::vector<cudaEvent_t> events;

  ~Context() {
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    cudaFree(operands.base), cudaFree(outputs.base), cudaFree(weights), cudaFree(x), cudaFree(constant), cudaFree(y);
    cudaFree(verdicts), cudaFreeHost(gate);
    if (stream) cudaStreamDestroy(stream);
  }
};

template <class T>
void reserve(T*& buffer, int64_t& capacity, int64_t needed) {
  if (needed <= capacity) return;
  TA_CHECK(cudaFree(buffer));
  buffer = nullptr, capacity = 0;
  TA_CHECK(cudaMalloc(&buffer, needed * sizeof(T)));
  capacity = needed;
}

void open(Context& c, int ordinal, int64_t operand_bytes, int64_t output_bytes, double l2_multiple, uint64_t seed) {
  TA_CHECK(cudaSetDevice(ordinal));
  int l2 = 0;
  TA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, ordinal));
  const int64_t ring = round_up(int64_t(l2 * l2_multiple), kAlign);
  TA_CHECK(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
  // Between two uses of a slice of s <= max bytes, at least size - 2 s >= `ring` bytes of other slices are handed out.
  c.operands.size = 2 * (round_up(operand_bytes, kAlign) + 2 * kAlign) + ring;
  c.outputs.size = 2 * round_up(output_bytes + 2 * kGuardBytes, kAlign) + ring;
  TA_CHECK(cudaMalloc(&c.operands.base, c.operands.size));
  TA_CHECK(cudaMalloc(&c.outputs.base, c.outputs.size));
  TA_CHECK(cudaMalloc(&c.weights, kMaxWeights * sizeof(uint64_t)));
  TA_CHECK(cudaMalloc(&c.constant, sizeof(uint64_t)));
  TA_CHECK(cudaHostAlloc(&c.gate, sizeof(Gate), cudaHostAllocMapped));
  fill_random<<<1024, kThreads, 0, c.stream>>>(reinterpret_cast<uint64_t*>(c.operands.base), c.operands.size / 8, seed);
  fill_random<<<1024, kThreads, 0, c.stream>>>(c.weights, kMaxWeights, ~seed);
  TA_CHECK(cudaGetLastError());
  c.events.resize(2 * kBatch);
  for (cudaEvent_t& event : c.events) TA_CHECK(cudaEventCreate(&event));
  TA_CHECK(cudaStreamSynchronize(c.stream));
}

// Collects samples while the stream is held; flush() lets them run and reads the events.
class Batch {
 public:
  explicit Batch(Context& c) : c_(c) {}
  void start() {
    hold();
    TA_CHECK(cudaEventRecord(c_.events[2 * targets_.size()], c_.stream));
  }
  void stop(int64_t* elapsed_ns) {
    TA_CHECK(cudaEventRecord(c_.events[2 * targets_.size() + 1], c_.stream));
    targets_.push_back(elapsed_ns);
  }
  void count(int operations) { enqueued_ += operations; }
  bool full(int operations) const { return enqueued_ + operations > kBatch; }
  void flush() {
    if (!held_) return;
    c_.gate->open = 1;
    held_ = false;
    TA_CHECK(cudaStreamSynchronize(c_.stream));
    expired_ |= c_.gate->expired != 0;
    for (size_t i = 0; i < targets_.size(); ++i) {
      float ms = 0;
      TA_CHECK(cudaEventElapsedTime(&ms, c_.events[2 * i], c_.events[2 * i + 1]));
      *targets_[i] = int64_t(double(ms) * 1e6 + 0.5);
    }
    targets_.clear();
    enqueued_ = 0;
  }
  // True if a hold ran into its limit, so that launch cost may have leaked into a sample.
  bool expired() const { return expired_; }
  ~Batch() { c_.gate->open = 1; }

 private:
  void hold() {
    if (held_) return;
    c_.gate->open = 0, c_.gate->expired = 0;
    hold_stream<<<1, 1, 0, c_.stream>>>(c_.gate, 500'000'000ull);
    TA_CHECK(cudaGetLastError());
    held_ = true;
  }
  Context& c_;
  std::vector<int64_t*> targets_;
  int enqueued_ = 0;
  bool held_ = false, expired_ = false;
};

struct Operands {
  char *a, *b;
};

class Measurement {
 public:
  Measurement(Context& c, const ta_job& job, const ta_results& out) : c_(c), j_(job), out_(out) {
    words_ = int(int64_t(j_.k) * j_.bits / 32);
    output_bytes_ = int64_t(j_.m) * j_.n * 4;
    int64_t capacity = c_.verdict_capacity;
    reserve(c_.verdicts, capacity, 2 * j_.candidates);
    c_.verdict_capacity = int(capacity);
    reserve(c_.x, c_.x_capacity, j_.k);
    reserve(c_.y, c_.y_capacity, j_.m);
  }

  bool run() {
    prove();
    if (!j_.cold) choose_launches();
    return time();
  }

 private:
  Operands operands() {
    // a and b are separate slices of one step of the ring
    int64_t a_bytes = round_up(int64_t(j_.m) * words_ * 4, kAlign);
    char* base = c_.operands.slice(a_bytes + int64_t(j_.n) * words_ * 4);
    return {base, base + a_bytes};
  }
  int32_t* output() { return reinterpret_cast<int32_t*>(c_.outputs.slice(output_bytes_ + 2 * kGuardBytes) + kGuardBytes); }
  bool alive(int candidate) const { return out_.outcome[candidate] == TA_OK; }

  void launch(int candidate, const Operands& in, int32_t* d) {
    int code;
    if (j_.entry[candidate] < 0) {
      code = j_.external(in.a, in.b, d, j_.m, j_.n, j_.k, c_.stream);
    } else {
      ta_gemm gemm{j_.m, j_.n, j_.k, in.a, in.b, d};
      code = ta_entries[j_.entry[candidate]].launch(&gemm, c_.stream);
    }
    cudaError_t error = cudaGetLastError();
    if (code == 0 && error == cudaSuccess) return;
    out_.outcome[candidate] = code == 1 ? TA_NOT_IMPLEMENTED : TA_LAUNCH_FAILED;
    out_.detail[candidate] = error;
  }

  // y = A (B r): what D r must be for these operands.
  template <int Bits>
  void expect(const Operands& in) {
    const int rows = 64;
    dim3 grid((words_ + kThreads - 1) / kThreads, (j_.n + rows - 1) / rows);
    TA_CHECK(cudaMemsetAsync(c_.x, 0, int64_t(j_.k) * 8, c_.stream));
    TA_CHECK(cudaMemsetAsync(c_.constant, 0, 8, c_.stream));
    times_weights<Bits><<<grid, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(in.b), c_.weights + offset(), c_.x,
                                                         j_.n, words_, rows);
    if (Bits == 1 && j_.xor_popc)
      xor_weights<<<1, kThreads, 0, c_.stream>>>(c_.weights + offset(), c_.x, c_.constant, j_.n, j_.k);
    times_vector<Bits><<<j_.m, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(in.a), c_.x, c_.constant, c_.y, words_);
    TA_CHECK(cudaGetLastError());
  }
  void expect(const Operands& in) {
    if (j_.bits == 8) expect<8>(in);
    else if (j_.bits == 4) expect<4>(in);
    else expect<1>(in);
  }
  // Another window of the weights for each job.
  int64_t offset() const { return int64_t(splitmix64(j_.seed) % uint64_t(kMaxWeights - j_.n + 1)); }

  void check(const int32_t* d, Verdict* verdict) {
    check_rows<<<j_.m, kThreads, 0, c_.stream>>>(d, c_.weights + offset(), c_.y, j_.n, verdict);
    TA_CHECK(cudaGetLastError());
  }
  void check_directly(const Operands& in, const int32_t* d, Verdict* verdict) {
    const int64_t elements = int64_t(j_.m) * j_.n;
    const int blocks = int((elements + kThreads - 1) / kThreads);
    auto a = reinterpret_cast<uint32_t*>(in.a), b = reinterpret_cast<uint32_t*>(in.b);
    if (j_.bits == 8) check_elements<8><<<blocks, kThreads, 0, c_.stream>>>(a, b, d, j_.m, j_.n, words_, 0, verdict);
    else if (j_.bits == 4) check_elements<4><<<blocks, kThreads, 0, c_.stream>>>(a, b, d, j_.m, j_.n, words_, 0, verdict);
    else check_elements<1><<<blocks, kThreads, 0, c_.stream>>>(a, b, d, j_.m, j_.n, words_, j_.xor_popc, verdict);
    TA_CHECK(cudaGetLastError());
  }

  void spoil(int32_t* d) {
    spoil_rows<<<(j_.m + kThreads - 1) / kThreads, kThreads, 0, c_.stream>>>(d, j_.m, j_.n);
    TA_CHECK(cudaGetLastError());
  }

  // Every candidate computes the same product into poisoned memory; all of D and both guard bands are checked.
  void prove() {
    std::vector<Verdict> host(2 * j_.candidates);
    for (Verdict& v : host) v = {0, 0, 0, ~0ull};
    TA_CHECK(cudaMemcpyAsync(c_.verdicts, host.data(), host.size() * sizeof(Verdict), cudaMemcpyHostToDevice, c_.stream));
    hot_ = operands();
    hot_d_ = output();
    expect(hot_);
    char* slot = reinterpret_cast<char*>(hot_d_) - kGuardBytes;
    for (int i = 0; i < j_.candidates; ++i) {
      out_.outcome[i] = TA_OK, out_.detail[i] = 0, out_.launches[i] = 1;
      TA_CHECK(cudaMemsetAsync(slot, kPoison & 0xff, output_bytes_ + 2 * kGuardBytes, c_.stream));
      launch(i, hot_, hot_d_);
      if (!alive(i)) continue;
      check(hot_d_, c_.verdicts + i);
      check_guards<<<4, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(slot),
                                                  reinterpret_cast<uint32_t*>(slot + kGuardBytes + output_bytes_),
                                                  kGuardBytes / 4, c_.verdicts + i);
      if (int64_t(j_.m) * j_.n * j_.k <= j_.reference_macs) check_directly(hot_, hot_d_, c_.verdicts + i);
    }
    read_verdicts(host, 0);
    for (int i = 0; i < j_.candidates; ++i) {
      if (!alive(i)) continue;
      const Verdict& v = host[i];
      if (v.touched_guards) out_.outcome[i] = TA_GUARD_TOUCHED;
      else if (v.wrong_rows) out_.outcome[i] = TA_WRONG_ROWS;
      else if (v.wrong_elements) out_.outcome[i] = TA_WRONG_ELEMENT;
      if (!alive(i)) out_.detail[i] = int64_t(v.first);
    }
  }
  void read_verdicts(std::vector<Verdict>& host, int first) {
    TA_CHECK(cudaMemcpyAsync(host.data(), c_.verdicts + first, j_.candidates * sizeof(Verdict), cudaMemcpyDeviceToHost,
                             c_.stream));
    TA_CHECK(cudaStreamSynchronize(c_.stream));
  }

  // Hot samples fill at least hot_fill_ns. All candidates take as many launches as the fastest needs, so that what an
  // interval costs weighs on all alike. A pilot of a few launches says how many; the interval itself makes it look slow,
  // hence the margin.
  void choose_launches() {
    std::vector<int64_t> pilot(j_.candidates, 0);
    Batch batch(c_);
    for (int i = 0; i < j_.candidates; ++i) {
      if (!alive(i)) continue;
      if (batch.full(kPilotLaunches + 2)) batch.flush();
      batch.start();
      for (int repeat = 0; repeat < kPilotLaunches; ++repeat) launch(i, hot_, hot_d_);
      batch.stop(&pilot[i]);
      batch.count(kPilotLaunches + 2);
    }
    batch.flush();
    int64_t fastest = INT64_MAX;
    for (int i = 0; i < j_.candidates; ++i)
      if (alive(i)) fastest = std::min(fastest, std::max<int64_t>(pilot[i], 1));
    const double launches = 1.1 * double(j_.hot_fill_ns) * kPilotLaunches / double(fastest);
    for (int i = 0; i < j_.candidates; ++i)
      out_.launches[i] = std::max(1, std::min(j_.hot_max_launches, int(launches) + 1));
  }

  // Candidates take turns; the output of each one's last launch is checked. Cold outputs that stay intact until then are
  // checked after all samples, hot ones (all in one place) and large ones between samples, after the end event.
  bool time() {
    Batch batch(c_);
    const int64_t slot = round_up(output_bytes_ + 2 * kGuardBytes, kAlign);
    const bool defer = j_.cold && (j_.candidates + 1) * slot <= c_.outputs.size;
    std::vector<Operands> last_in(j_.candidates);
    std::vector<int32_t*> last_d(j_.candidates, nullptr);
    for (int turn = 0; turn < j_.rounds * j_.candidates; ++turn) {
      const int round = turn / j_.candidates, i = j_.order[turn];
      if (!alive(i)) continue;
      const bool last = round == j_.rounds - 1;
      const int operations = out_.launches[i] + (last ? 10 : 2);
      if (batch.full(operations)) batch.flush();
      Operands in = j_.cold ? operands() : hot_;
      int32_t* d = j_.cold ? output() : hot_d_;
      // The place may hold the right values already: break one element a row, or the last check could not fail.
      if (last) spoil(d);
      batch.start();
      for (int repeat = 0; repeat < out_.launches[i]; ++repeat) launch(i, in, d);
      batch.stop(&out_.elapsed_ns[i * j_.rounds + round]);
      if (last) last_in[i] = in, last_d[i] = d;
      if (last && !defer) check_last(i, in, d);
      batch.count(operations);
    }
    for (int i = 0; defer && i < j_.candidates; ++i)
      if (alive(i)) check_last(i, last_in[i], last_d[i]);
    batch.flush();
    std::vector<Verdict> host(j_.candidates);
    read_verdicts(host, j_.candidates);
    for (int i = 0; i < j_.candidates; ++i)
      if (alive(i) && host[i].wrong_rows) out_.outcome[i] = TA_WRONG_AFTER, out_.detail[i] = int64_t(host[i].first);
    return !batch.expired();
  }
  void check_last(int i, const Operands& in, int32_t* d) {
    if (j_.cold) expect(in);
    check(d, c_.verdicts + j_.candidates + i);
  }

  Context& c_;
  const ta_job& j_;
  const ta_results& out_;
  int words_;
  int64_t output_bytes_;
  Operands hot_{};
  int32_t* hot_d_ = nullptr;
};

}  // namespace
}  // namespace tilearena

using namespace tilearena;

extern "C" {

int ta_abi_version() { return TA_ABI_VERSION; }
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

// Sets memory aside for problems of at most operand_bytes (A and B) and output_bytes (D). Null on failure.
void* ta_open(int ordinal, int64_t operand_bytes, int64_t output_bytes, double l2_multiple, uint64_t seed) {
  if (ta_gpus() < 0) return nullptr;
  Context* context = new (std::nothrow) Context;
  try {
    open(*context, ordinal, operand_bytes, output_bytes, l2_multiple, seed);
    return context;
  } catch (const Failure&) {
    delete context;
    cudaGetLastError();
    return nullptr;
  }
}

void ta_close(void* context) { delete static_cast<Context*>(context); }

// 0: measured; 1: measured, but a hold expired, so repeat it; -1: the device failed, and this process must not go on.
int ta_measure(void* context, const ta_job* job, const ta_results* results) {
  try {
    return Measurement(*static_cast<Context*>(context), *job, *results).run() ? 0 : 1;
  } catch (const Failure&) {
    return -1;
  }
}

// Elapsed time of event pairs with nothing between them, in ns.
int ta_empty_intervals(void* context, int count, int64_t* elapsed_ns) {
  try {
    Batch batch(*static_cast<Context*>(context));
    for (int i = 0; i < count; ++i) {
      if (batch.full(2)) batch.flush();
      batch.start();
      batch.stop(&elapsed_ns[i]);
      batch.count(2);
    }
    batch.flush();
    return 0;
  } catch (const Failure&) {
    return -1;
  }
}

}  // extern "C"
