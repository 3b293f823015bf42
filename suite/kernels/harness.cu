// The measuring harness: operands, exactness, and device times of the library's templates, behind a plain C interface.
//
// Cold launches walk through rings of operands and outputs; before a slice comes round again, more than three times the L2
// in other slices was touched. Nothing is flushed. How a time is taken is in clock.cuh.
#include "abi.h"
#include "clock.cuh"
#include "cublaslt.cuh"
#include "exact.cuh"
#include "partition.cuh"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

extern "C" const ta_entry ta_entries[];  // generated: the templates that were compiled
extern "C" const int ta_entry_count;

namespace tilearena {
namespace {

constexpr int kAbiVersion = 4;  // of what abi.py declares
constexpr int64_t kAlign = 256;
constexpr int64_t kGuardBytes = 4096;
constexpr int kMaxWeights = 1 << 20;
constexpr int kPilotLaunches = 3;
constexpr int kAttempts = 3;  // of what a hold that expired has spoiled
constexpr int kThreads = 256;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// A ring of device memory that hands out consecutive slices.
struct Ring {
  char* base = nullptr;
  int64_t size = 0, cursor = 0;
  char* slice(int64_t bytes) {
    bytes = round_up(bytes, kAlign);
    if (bytes > size) fail("a problem is larger than the memory that was set aside for it", cudaErrorMemoryAllocation);
    if (cursor + bytes > size) cursor = 0;
    char* out = base + cursor;
    cursor += bytes;
    return out;
  }
};

// What a problem's checks found: written on the device, and copied behind all that was enqueued before.
class Verdicts {
 public:
  ~Verdicts() {
    cudaFree(device_), cudaFreeHost(host_);
    if (copied_) cudaEventDestroy(copied_);
  }
  void reserve(int count) {
    if (!copied_) TA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
    if (count <= capacity_) return;
    TA_CHECK(cudaFree(device_));
    TA_CHECK(cudaFreeHost(host_));
    device_ = host_ = nullptr, capacity_ = 0;
    TA_CHECK(cudaMalloc(&device_, count * sizeof(Verdict)));
    TA_CHECK(cudaHostAlloc(&host_, count * sizeof(Verdict), cudaHostAllocDefault));
    capacity_ = count;
  }
  Verdict* device(int i) { return device_ + i; }
  void clear(cudaStream_t stream) { TA_CHECK(cudaMemsetAsync(device_, 0, capacity_ * sizeof(Verdict), stream)); }
  void copy(cudaStream_t stream) {
    TA_CHECK(cudaMemcpyAsync(host_, device_, capacity_ * sizeof(Verdict), cudaMemcpyDeviceToHost, stream));
    TA_CHECK(cudaEventRecord(copied_, stream));
  }
  const Verdict* wait() {
    TA_CHECK(cudaEventSynchronize(copied_));
    return host_;
  }

 private:
  int capacity_ = 0;
  Verdict *device_ = nullptr, *host_ = nullptr;
  cudaEvent_t copied_ = nullptr;
};

class Problem;

struct Context {
  Partition partition;  // first, so that it is the last to go
  CublasLt cublaslt;
  cudaStream_t stream = nullptr;
  Clock clock, proof_clock;
  Ring operands, outputs;
  uint64_t *weights = nullptr, *x = nullptr, *constant = nullptr;
  int64_t x_capacity = 0;
  // of a problem and of the next one, which take turns
  uint64_t* y[2] = {};
  int64_t y_capacity[2] = {};
  Verdicts verdicts[2];
  int side = 0;
  std::unique_ptr<Problem> problem, next;
  int64_t idle = 0;         // bytes of other operands that a cold operand has waited for
  int64_t overhead_ns = 0;  // what an interval adds to the launches in it
  std::set<int> loaded;     // entries that were launched before

  ~Context();
};

template <class T>
void reserve(T*& buffer, int64_t& capacity, int64_t needed) {
  if (needed <= capacity) return;
  TA_CHECK(cudaFree(buffer));
  buffer = nullptr, capacity = 0;
  TA_CHECK(cudaMalloc(&buffer, needed * sizeof(T)));
  capacity = needed;
}

void open(Context& c, const ta_options& o) {
  TA_CHECK(cudaSetDevice(o.ordinal));
  if (o.sm_count > 0) c.partition.open(o.ordinal, o.sm_count);
  int l2 = 0;
  TA_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, o.ordinal));
  const int64_t ring = c.idle = round_up(int64_t(l2 * o.l2_multiple), kAlign);
  TA_CHECK(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
  // Between two uses of a slice of s <= max bytes, at least size - 2 s >= `ring` bytes of other slices are handed out.
  c.operands.size = 2 * (round_up(o.operand_bytes, kAlign) + 2 * kAlign) + ring;
  c.outputs.size = 2 * round_up(o.output_bytes + 2 * kGuardBytes, kAlign) + ring;
  TA_CHECK(cudaMalloc(&c.operands.base, c.operands.size));
  TA_CHECK(cudaMalloc(&c.outputs.base, c.outputs.size));
  TA_CHECK(cudaMalloc(&c.weights, kMaxWeights * sizeof(uint64_t)));
  TA_CHECK(cudaMalloc(&c.constant, sizeof(uint64_t)));
  fill_random<<<1024, kThreads, 0, c.stream>>>(reinterpret_cast<uint64_t*>(c.operands.base), c.operands.size / 8, o.seed);
  fill_random<<<1024, kThreads, 0, c.stream>>>(c.weights, kMaxWeights, ~o.seed);
  TA_CHECK(cudaGetLastError());
  // a kernel's first launch loads it, which must not happen while the stream is held
  spoil_rows<<<1, 1, 0, c.stream>>>(reinterpret_cast<int32_t*>(c.weights), 0, 1);
  do_nothing<<<1, 32, 0, c.stream>>>();
  TA_CHECK(cudaGetLastError());
  c.clock.open(c.stream);
  c.proof_clock.open(c.stream);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    c.overhead_ns = c.clock.overhead_ns();
    if (!c.clock.expired()) break;
  }
  if (o.cublaslt) c.cublaslt.open(o.cublaslt, o.sm_count);
  TA_CHECK(cudaStreamSynchronize(c.stream));
}

struct Operands {
  char *a, *b;
};

// One problem from its proof to its last sample.
class Problem {
 public:
  Problem(Context& c, const ta_job& job)
      : c_(c), j_(job), entry_(job.entry, job.entry + job.candidates), launches_(job.candidates, 1),
        outcome_(job.candidates, TA_OK), first_ns_(job.candidates, 0), detail_(job.candidates, 0),
        twin_(job.candidates, -1), side_(c.side ^= 1), verdicts_(c.verdicts[side_]) {
    verdicts_.reserve(j_.candidates);
    words_ = int(int64_t(j_.k) * j_.bits / 32);
    output_bytes_ = int64_t(j_.m) * j_.n * 4;
    reserve(c_.x, c_.x_capacity, j_.k);
    reserve(c_.y[side_], c_.y_capacity[side_], j_.m);
  }

  // Enqueues the proof: every candidate computes the same product into poisoned memory; all of D and both guard bands are
  // checked. The stream is not held: the first launch of a kernel loads it, which may wait for the stream.
  void prove() {
    verdicts_.clear(c_.stream);
    hot_ = operands();
    hot_d_ = output();
    for (int i = 0; i < j_.candidates; ++i)
      if (c_.loaded.insert(entry_[i]).second) launch(i, hot_, hot_d_, 1);  // the first launch loads the kernel
    c_.proof_clock.reset(false);
    c_.proof_clock.reserve(5);
    expect(hot_);
    char* slot = reinterpret_cast<char*>(hot_d_) - kGuardBytes;
    for (int i = 0; i < j_.candidates; ++i) {
      for (int j = 0; j < i && entry_[i] >= 0; ++j)
        if (entry_[j] == entry_[i]) twin_[i] = j;  // the control is the default's kernel, which is proved already
      if (twin_[i] >= 0 || !alive(i)) continue;
      c_.proof_clock.reserve(8);
      TA_CHECK(cudaMemsetAsync(slot, kPoison & 0xff, output_bytes_ + 2 * kGuardBytes, c_.stream));
      c_.proof_clock.start();
      launch(i, hot_, hot_d_, 1);
      c_.proof_clock.stop(&first_ns_[i]);
      if (!alive(i)) continue;
      check(hot_d_, verdicts_.device(i));
      check_guards<<<4, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(slot),
                                                  reinterpret_cast<uint32_t*>(slot + kGuardBytes + output_bytes_),
                                                  kGuardBytes / 4, verdicts_.device(i));
      TA_CHECK(cudaGetLastError());
      if (int64_t(j_.m) * j_.n * j_.k <= j_.reference_macs) check_directly(hot_, hot_d_, verdicts_.device(i));
    }
    c_.proof_clock.release();
    verdicts_.copy(c_.stream);
  }

  // Once the proof is enqueued: waits for it, and settles how often each candidate is launched in one sample.
  void begin() {
    conclude();
    if (j_.launches > 0) std::fill(launches_.begin(), launches_.end(), j_.launches);
    else if (!j_.cold) choose_launches(first_ns_);
  }

  // One sample a turn; false if a hold expired. The output of each candidate's last turn is checked: cold ones that stay
  // intact until the end after all samples, hot ones (all in one place) and large ones between samples. `meanwhile` is
  // called when all is enqueued and released: what it enqueues runs while the samples are read.
  template <class F>
  bool sample(int turns, const int* turn, int64_t* elapsed_ns, F meanwhile) {
    std::vector<int> last(j_.candidates, -1);
    for (int t = 0; t < turns; ++t) last[turn[t]] = t;
    int first_last = turns;
    for (int i = 0; i < j_.candidates; ++i)
      if (last[i] >= 0) first_last = std::min(first_last, last[i]);
    // Checked at the end is what no later launch of this call writes to, and whose operands no launch soon after reads.
    const int64_t most = *std::max_element(launches_.begin(), launches_.end()) * (turns - first_last + 1);
    const int64_t slot = round_up(output_bytes_ + 2 * kGuardBytes, kAlign);
    const bool defer = j_.cold && most * slot <= c_.outputs.size && most * operand_slice() + c_.idle <= c_.operands.size;
    verdicts_.clear(c_.stream);
    std::vector<Operands> last_in(j_.candidates);
    std::vector<int32_t*> last_d(j_.candidates, nullptr);
    c_.clock.reset(j_.held);
    for (int t = 0; t < turns; ++t) {
      const int i = turn[t];
      if (!alive(i)) continue;
      c_.clock.reserve(launches_[i] + (last[i] == t && !defer ? 10 : 3));
      Operands in = j_.cold ? operands() : hot_;
      int32_t* d = j_.cold ? output() : hot_d_;
      // The place may hold the right values already: break one element a row, or the last check could not fail. Cold
      // samples are all spoiled, since what runs before a launch makes it slower or faster by up to a per cent.
      if (last[i] == t || j_.cold) spoil(d);
      c_.clock.start();
      timed_launches(i, in, d);
      c_.clock.stop(&elapsed_ns[t]);
      if (last[i] != t || !alive(i)) continue;
      last_in[i] = in, last_d[i] = d;
      if (!defer) check_last(i, in, d);
    }
    for (int i = 0; i < j_.candidates; ++i)
      if (defer && last_d[i] && alive(i)) {
        c_.clock.reserve(8);
        check_last(i, last_in[i], last_d[i]);
      }
    c_.clock.release();
    verdicts_.copy(c_.stream);
    meanwhile();
    c_.clock.finish();
    const Verdict* verdicts = verdicts_.wait();
    for (int i = 0; i < j_.candidates; ++i)
      if (alive(i) && verdicts[i].wrong_rows) outcome_[i] = TA_WRONG_AFTER, detail_[i] = int64_t(~verdicts[i].not_first);
    return !c_.clock.expired();
  }

  void report(const ta_proof& out) const {
    std::copy(launches_.begin(), launches_.end(), out.launches);
    std::copy(outcome_.begin(), outcome_.end(), out.outcome);
    std::copy(detail_.begin(), detail_.end(), out.detail);
  }

 private:
  Operands operands() {
    // a and b are separate slices of one step of the ring
    char* base = c_.operands.slice(operand_slice());
    return {base, base + round_up(int64_t(j_.m) * words_ * 4, kAlign)};
  }
  int64_t operand_slice() const {
    return round_up(int64_t(j_.m) * words_ * 4, kAlign) + round_up(int64_t(j_.n) * words_ * 4, kAlign);
  }
  int32_t* output() { return reinterpret_cast<int32_t*>(c_.outputs.slice(output_bytes_ + 2 * kGuardBytes) + kGuardBytes); }
  bool alive(int candidate) const { return outcome_[candidate] == TA_OK; }

  void timed_launches(int i, Operands& in, int32_t*& d) {
    if (!j_.cold) return launch(i, in, d, launches_[i]);
    for (int repeat = 0; repeat < launches_[i] && alive(i); ++repeat) {
      if (repeat) in = operands(), d = output();
      launch(i, in, d, 1);
    }
  }

  void launch(int i, const Operands& in, int32_t* d, int launches) {
    int code;
    int64_t error = 0;
    const ta_gemm gemm{j_.m, j_.n, j_.k, in.a, in.b, d};
    if (entry_[i] == TA_ENTRY_CUBLASLT)
      code = j_.bits == 8 ? c_.cublaslt.launch(gemm, launches, c_.stream, &error) : 1;
    else if (entry_[i] < 0)
      code = j_.externals[TA_ENTRY_EXTERNAL - entry_[i]](in.a, in.b, d, j_.m, j_.n, j_.k, launches, c_.stream);
    else
      code = ta_entries[entry_[i]].launch(&gemm, launches, c_.stream);
    cudaError_t cuda = cudaGetLastError();
    if (code == 0 && cuda == cudaSuccess) return;
    outcome_[i] = code == 1 ? TA_NOT_IMPLEMENTED : TA_LAUNCH_FAILED;
    detail_[i] = error ? error : cuda;
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
    times_vector<Bits><<<j_.m, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(in.a), c_.x, c_.constant, c_.y[side_],
                                                       words_);
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
    check_rows<<<j_.m, kThreads, 0, c_.stream>>>(d, c_.weights + offset(), c_.y[side_], j_.n, verdict);
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

  // Waits for the proof and says which candidates passed.
  void conclude() {
    c_.proof_clock.finish();
    const Verdict* verdicts = verdicts_.wait();
    for (int i = 0; i < j_.candidates; ++i) {
      const int twin = twin_[i];
      if (twin >= 0) outcome_[i] = outcome_[twin], detail_[i] = detail_[twin], first_ns_[i] = first_ns_[twin];
      if (!alive(i)) continue;
      const Verdict& v = verdicts[i];
      if (v.touched_guards) outcome_[i] = TA_GUARD_TOUCHED;
      else if (v.wrong_rows) outcome_[i] = TA_WRONG_ROWS;
      else if (v.wrong_elements) outcome_[i] = TA_WRONG_ELEMENT;
      if (!alive(i)) detail_[i] = int64_t(~v.not_first);
    }
  }

  // Hot samples fill at least hot_fill_ns. All templates take as many launches as the fastest of them needs, so that what
  // an interval adds weighs on all alike; a kernel of the vendor takes as many as it needs itself. A held pilot says how
  // many: the proof's times have host launch cost in them, and only tell which templates may be the fastest.
  void choose_launches(const std::vector<int64_t>& first_ns) {
    std::vector<double> launch_ns(j_.candidates, INFINITY);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<int64_t> pilot_ns(j_.candidates, 0);
      std::vector<int> launches(j_.candidates, 0);
      c_.clock.reset(j_.held);
      for (int i = 0; i < j_.candidates; ++i) {
        if (!alive(i) || first_ns[i] > 1.25 * fastest(group(i), first_ns)) continue;
        launches[i] = first_ns[i] < 2 * j_.hot_fill_ns ? kPilotLaunches : 1;
        c_.clock.reserve(launches[i] + 2);
        c_.clock.start();
        launch(i, hot_, hot_d_, launches[i]);
        c_.clock.stop(&pilot_ns[i]);
      }
      c_.clock.finish();
      for (int i = 0; i < j_.candidates; ++i)
        if (launches[i]) launch_ns[i] = std::max(1.0, double(pilot_ns[i] - c_.overhead_ns) / launches[i]);
      if (!c_.clock.expired()) break;
    }
    for (int i = 0; i < j_.candidates; ++i) {
      // a little on top, since not every sample is as long as the pilot was
      const double wanted = (1.03 * double(j_.hot_fill_ns) - double(c_.overhead_ns)) / fastest(group(i), launch_ns);
      launches_[i] = std::max(1, int(std::min<double>(j_.hot_max_launches, std::ceil(wanted))));
    }
  }
  // The candidates that take as many launches as this one.
  std::vector<int> group(int candidate) const {
    if (entry_[candidate] < 0) return {candidate};
    std::vector<int> templates;
    for (int i = 0; i < j_.candidates; ++i)
      if (entry_[i] >= 0) templates.push_back(i);
    return templates;
  }
  // The shortest time among those that still live.
  template <class T>
  double fastest(const std::vector<int>& candidates, const std::vector<T>& time_ns) const {
    double shortest = INFINITY;
    for (int i : candidates)
      if (alive(i)) shortest = std::min(shortest, double(time_ns[i]));
    return shortest;
  }

  void check_last(int i, const Operands& in, int32_t* d) {
    if (j_.cold) expect(in);
    check(d, verdicts_.device(i));
  }

  Context& c_;
  const ta_job j_;
  std::vector<int> entry_, launches_, outcome_;
  std::vector<int64_t> first_ns_, detail_;
  std::vector<int> twin_;
  const int side_;
  Verdicts& verdicts_;
  int words_;
  int64_t output_bytes_;
  Operands hot_{};
  int32_t* hot_d_ = nullptr;
};

Context::~Context() {
  problem.reset(), next.reset();
  cudaFree(operands.base), cudaFree(outputs.base), cudaFree(weights), cudaFree(x), cudaFree(constant);
  cudaFree(y[0]), cudaFree(y[1]);
  if (stream) cudaStreamDestroy(stream);
}

// Runs what may fail; -1 if it did: the device failed, and this process must not go on.
template <class F>
int guarded(void* context, F body) {
  try {
    return body(*static_cast<Context*>(context));
  } catch (const Failure&) {
    static_cast<Context*>(context)->clock.abandon();
    static_cast<Context*>(context)->proof_clock.abandon();
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
  Context* context = new (std::nothrow) Context;
  if (!context) return nullptr;
  try {
    open(*context, *options);
    return context;
  } catch (const Failure&) {
    delete context;
    cudaGetLastError();
    return nullptr;
  }
}

void ta_close(void* context) { delete static_cast<Context*>(context); }

// cublasLtGetVersion, 0 where it is not loaded.
int64_t ta_cublaslt_version(void* context) { return static_cast<Context*>(context)->cublaslt.version(); }

// Proves all candidates of a problem, which the next samples are of; without a job the one that was announced to
// ta_sample. 0, or -1: the device failed.
int ta_begin(void* context, const ta_job* job, const ta_proof* proof) {
  return guarded(context, [&](Context& c) {
    c.problem = job ? std::make_unique<Problem>(c, *job) : std::move(c.next);
    c.next.reset();
    if (job) c.problem->prove();
    c.problem->begin();
    c.problem->report(*proof);
    return 0;
  });
}

// Takes a sample for each turn (an index into the job's candidates). While they are read, the proof of the `next` problem
// (null if there is none) runs already. 0; 1: a hold expired, so take them again, without announcing the next one once
// more; -1: the device failed, perhaps under the next problem.
int ta_sample(void* context, int turns, const int* turn, int64_t* elapsed_ns, const ta_proof* proof, const ta_job* next) {
  return guarded(context, [&](Context& c) {
    const bool good = c.problem->sample(turns, turn, elapsed_ns, [&] {
      if (!next) return;
      c.next = std::make_unique<Problem>(c, *next);
      c.next->prove();
    });
    c.problem->report(*proof);
    return good ? 0 : 1;
  });
}

// Elapsed time in ns of event pairs with nothing between them, or with launches of a kernel that does nothing. Returns as
// ta_sample.
int ta_empty_intervals(void* context, int launches, int count, int64_t* elapsed_ns) {
  return guarded(context, [&](Context& c) {
    c.clock.reset(true);
    for (int i = 0; i < count; ++i) {
      c.clock.reserve(2 + launches);
      c.clock.start();
      for (int repeat = 0; repeat < launches; ++repeat) do_nothing<<<1, 32, 0, c.stream>>>();
      c.clock.stop(&elapsed_ns[i]);
    }
    TA_CHECK(cudaGetLastError());
    c.clock.finish();
    return c.clock.expired() ? 1 : 0;
  });
}

}  // extern "C"
