// The clock: event pairs on a stream that is held until a batch is enqueued, so that host launch cost is in no interval.
//
// Two batches take turns: while one runs, the next is enqueued behind a hold of its own. The first is short, so that the
// GPU does not wait long for it, and each is twice as long as the one before.
#pragma once
#include "failure.cuh"

#include <algorithm>
#include <stdint.h>
#include <vector>

namespace tilearena {

constexpr int kBatch = 128;  // enqueued operations a batch; two batches are far below the depth of a launch queue
constexpr int kFirstBatch = 12;
constexpr unsigned long long kHoldLimitNs = 500'000'000ull;

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

__global__ void do_nothing() {}

class Clock {
 public:
  void open(cudaStream_t stream) {
    stream_ = stream;
    for (Bank& bank : banks_) {
      TA_CHECK(cudaHostAlloc(&bank.gate, sizeof(Gate), cudaHostAllocMapped));
      TA_CHECK(cudaEventCreateWithFlags(&bank.done, cudaEventDisableTiming));
      bank.events.resize(2 * kBatch);
      for (cudaEvent_t& event : bank.events) TA_CHECK(cudaEventCreate(&event));
    }
  }
  ~Clock() {
    for (Bank& bank : banks_) {
      for (cudaEvent_t event : bank.events) cudaEventDestroy(event);
      if (bank.done) cudaEventDestroy(bank.done);
      cudaFreeHost(bank.gate);
    }
  }

  // Between reset() and finish() samples are collected; their times are there after finish().
  void reset(bool held) {
    held_ = held, expired_ = false, current_ = 0, limit_ = held ? kFirstBatch : kBatch;
    for (Bank& bank : banks_) bank.targets.clear(), bank.enqueued = 0, bank.closed = bank.running = false;
  }
  // Makes room for so many operations in the current batch, and holds the stream if it is the batch's first.
  void reserve(int operations) {
    if (banks_[current_].enqueued && banks_[current_].enqueued + operations > limit_) release();
    Bank& bank = banks_[current_];
    if (!bank.enqueued && held_) {
      bank.gate->open = 0, bank.gate->expired = 0, bank.closed = true;
      hold_stream<<<1, 1, 0, stream_>>>(bank.gate, kHoldLimitNs);
      TA_CHECK(cudaGetLastError());
    }
    bank.enqueued += operations;
  }
  void start() { TA_CHECK(cudaEventRecord(banks_[current_].events[2 * banks_[current_].targets.size()], stream_)); }
  void stop(int64_t* elapsed_ns) {
    Bank& bank = banks_[current_];
    TA_CHECK(cudaEventRecord(bank.events[2 * bank.targets.size() + 1], stream_));
    bank.targets.push_back(elapsed_ns);
  }
  // Lets the current batch run, and goes on with the other one.
  void release() {
    Bank& bank = banks_[current_];
    if (!bank.enqueued) return;
    TA_CHECK(cudaEventRecord(bank.done, stream_));
    bank.gate->open = 1;
    bank.running = true;
    current_ = 1 - current_, limit_ = limit_ < kBatch / 2 ? 2 * limit_ : kBatch;
    collect(banks_[current_]);
  }
  void finish() {
    release();
    collect(banks_[current_]);
    collect(banks_[1 - current_]);
  }
  // What an interval adds to the launches in it: of kernels that do nothing, one launch and three tell.
  int64_t overhead_ns() {
    constexpr int kPairs = 15;
    int64_t one[kPairs], three[kPairs];
    reset(true);
    for (int i = 0; i < 2 * kPairs; ++i) {
      const int launches = i % 2 ? 3 : 1;
      reserve(launches + 2);
      start();
      for (int repeat = 0; repeat < launches; ++repeat) do_nothing<<<1, 32, 0, stream_>>>();
      stop(i % 2 ? &three[i / 2] : &one[i / 2]);
    }
    TA_CHECK(cudaGetLastError());
    finish();
    std::nth_element(one, one + kPairs / 2, one + kPairs);
    std::nth_element(three, three + kPairs / 2, three + kPairs);
    return std::max<int64_t>(0, one[kPairs / 2] - (three[kPairs / 2] - one[kPairs / 2]) / 2);
  }
  // True if a hold ran into its limit, so that launch cost may have leaked into a sample.
  bool expired() const { return expired_; }
  // Lets everything run; for the way out after a failure.
  void abandon() {
    for (Bank& bank : banks_)
      if (bank.gate) bank.gate->open = 1;
  }

 private:
  struct Bank {
    Gate* gate = nullptr;
    cudaEvent_t done = nullptr;
    std::vector<cudaEvent_t> events;
    std::vector<int64_t*> targets;
    int enqueued = 0;
    bool closed = false, running = false;
  };
  void collect(Bank& bank) {
    if (!bank.running) return;
    TA_CHECK(cudaEventSynchronize(bank.done));
    expired_ |= bank.closed && bank.gate->expired;
    for (size_t i = 0; i < bank.targets.size(); ++i) {
      float ms = 0;
      TA_CHECK(cudaEventElapsedTime(&ms, bank.events[2 * i], bank.events[2 * i + 1]));
      *bank.targets[i] = int64_t(double(ms) * 1e6 + 0.5);
    }
    bank.targets.clear();
    bank.enqueued = 0, bank.closed = bank.running = false;
  }

  cudaStream_t stream_ = nullptr;
  Bank banks_[2];
  int current_ = 0, limit_ = kFirstBatch;
  bool held_ = true, expired_ = false;
};

}  // namespace tilearena
