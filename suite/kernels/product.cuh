// One product that several candidates compute: its operands, a candidate's launches, and the checks of what it wrote.
#pragma once
#include "context.cuh"

#include <vector>

extern "C" const ta_entry ta_entries[];  // generated: the templates that were compiled
extern "C" const int ta_entry_count;

namespace tilearena {

struct Operands {
  char *a, *b;
};

class Product {
 protected:
  Product(Context& context, const ta_job& job, int slot)
      : c_(context), j_(job), entry_(job.entry, job.entry + job.candidates), outcome_(job.candidates, TA_OK),
        detail_(job.candidates, 0), y_(context.y[slot]), words_(int(int64_t(job.k) * job.bits / 32)),
        output_bytes_(int64_t(job.m) * job.n * 4) {
    c_.x.reserve(j_.k);
    y_.reserve(j_.m);
  }

  // The next slices of the rings: of A and B, and of D between two guard bands.
  Operands operands() {
    char* base = c_.operands.slice(operand_slice());
    return {base, base + round_up(int64_t(j_.m) * words_ * 4, kAlign)};
  }
  int64_t operand_slice() const {
    return round_up(int64_t(j_.m) * words_ * 4, kAlign) + round_up(int64_t(j_.n) * words_ * 4, kAlign);
  }
  int32_t* output() { return reinterpret_cast<int32_t*>(c_.outputs.slice(guarded_bytes()) + kGuardBytes); }
  int64_t guarded_bytes() const { return output_bytes_ + 2 * kGuardBytes; }
  char* guarded(int32_t* d) const { return reinterpret_cast<char*>(d) - kGuardBytes; }

  bool alive(int candidate) const { return outcome_[candidate] == TA_OK; }
  bool is_vendor(int candidate) const { return entry_[candidate] < 0; }

  // Enqueues a candidate's launches; a candidate that cannot be launched lives no longer.
  void launch(int i, const Operands& in, int32_t* d, int launches) {
    int code;
    int64_t error = 0;
    const ta_gemm gemm{j_.m, j_.n, j_.k, in.a, in.b, d};
    if (entry_[i] == TA_ENTRY_CUBLASLT)
      code = j_.bits == 8 ? c_.cublaslt.launch(gemm, launches, c_.stream, &error) : 1;
    else if (is_vendor(i))
      code = j_.externals[TA_ENTRY_EXTERNAL - entry_[i]](in.a, in.b, d, j_.m, j_.n, j_.k, launches, c_.stream);
    else
      code = ta_entries[entry_[i]].launch(&gemm, launches, c_.stream);
    cudaError_t cuda = cudaGetLastError();
    if (code == 0 && cuda == cudaSuccess) return;
    outcome_[i] = code == 1 ? TA_NOT_IMPLEMENTED : TA_LAUNCH_FAILED;
    detail_[i] = error ? error : int64_t(cuda);
  }

  void poison(int32_t* d) { TA_CHECK(cudaMemsetAsync(guarded(d), kPoison & 0xff, guarded_bytes(), c_.stream)); }
  void spoil(int32_t* d) {
    spoil_rows<<<(j_.m + kThreads - 1) / kThreads, kThreads, 0, c_.stream>>>(d, j_.m, j_.n);
    TA_CHECK(cudaGetLastError());
  }

  // y = A (B r): what D r must be for these operands.
  void expect(const Operands& in) {
    if (j_.bits == 8) expect<8>(in);
    else if (j_.bits == 4) expect<4>(in);
    else expect<1>(in);
  }
  // All of D against what was expected last.
  void check(const int32_t* d, Verdict* verdict, bool guards = false) {
    check_rows<<<j_.m + guards, kThreads, 0, c_.stream>>>(d, c_.weights.data + offset(), y_.data, j_.m, j_.n,
                                                          kGuardBytes / 4, verdict);
    TA_CHECK(cudaGetLastError());
  }
  // Both guard bands, too, and small problems against a direct reference.
  void check_thoroughly(const Operands& in, int32_t* d, Verdict* verdict) {
    check(d, verdict, true);
    if (int64_t(j_.m) * j_.n * j_.k > j_.reference_macs) return;
    if (j_.bits == 8) check_directly<8>(in, d, verdict);
    else if (j_.bits == 4) check_directly<4>(in, d, verdict);
    else check_directly<1>(in, d, verdict);
  }

  Context& c_;
  const ta_job j_;
  const std::vector<int> entry_;
  std::vector<int> outcome_;
  std::vector<int64_t> detail_;

 private:
  template <int Bits>
  void expect(const Operands& in) {
    const int rows = 64;
    const uint64_t* r = c_.weights.data + offset();
    uint64_t *x = c_.x.data, *constant = c_.constant.data;
    dim3 grid((words_ + kThreads - 1) / kThreads, (j_.n + rows - 1) / rows);
    TA_CHECK(cudaMemsetAsync(x, 0, int64_t(j_.k) * 8, c_.stream));
    TA_CHECK(cudaMemsetAsync(constant, 0, 8, c_.stream));
    times_weights<Bits><<<grid, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(in.b), r, x, j_.n, words_, rows);
    if (Bits == 1 && j_.xor_popc) xor_weights<<<1, kThreads, 0, c_.stream>>>(r, x, constant, j_.n, j_.k);
    times_vector<Bits><<<j_.m, kThreads, 0, c_.stream>>>(reinterpret_cast<uint32_t*>(in.a), x, constant, y_.data, words_);
    TA_CHECK(cudaGetLastError());
  }
  // Another window of the weights for each job.
  int64_t offset() const { return int64_t(splitmix64(j_.seed) % uint64_t(kMaxWeights - j_.n + 1)); }

  template <int Bits>
  void check_directly(const Operands& in, const int32_t* d, Verdict* verdict) {
    const int blocks = int((int64_t(j_.m) * j_.n + kThreads - 1) / kThreads);
    auto a = reinterpret_cast<uint32_t*>(in.a), b = reinterpret_cast<uint32_t*>(in.b);
    check_elements<Bits><<<blocks, kThreads, 0, c_.stream>>>(a, b, d, j_.m, j_.n, words_, j_.xor_popc, verdict);
    TA_CHECK(cudaGetLastError());
  }

  Buffer<uint64_t>& y_;
  const int words_;
  const int64_t output_bytes_;
};

}  // namespace tilearena
