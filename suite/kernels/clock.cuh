// The clock: event pairs on a stream that is held until a batch is enqueued, so that host launch cost is in no interval.
//
// While a batch runs, the next ones are enqueued behind holds of their own. The first of a section is short, so that the
// GPU does not wait long for it, and each is twice as long as the one before.
#pragma once
#include "failure.cuh"

#include <algorithm>
#include <stdint.h>
#include <vector>

namespace tilearena {

// Operations a batch. A launch queue took 1,021 of an H200 (driver 580) before it blocked; a batch that is longer than that
// behind its own hold would wait for itself.
constexpr int kBatch = 128;
constexpr int kFirstBatch = 12;
constexpr int kBanks = 7;  // batches that are enqueued at the same time, at most: less than that queue takes
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

// Intervals that belong together. From begin() to wait() it stays where it is.
struct Section {
  bool held = true;
  bool expired = false;  // a hold ran into its limit, so that launch cost may have leaked into an interval
  int batches = 0;       // enqueued and not read yet
};

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

  // All that follows belongs to `section`, until release() or the next begin().
  void begin(Section& section, bool held) {
    release();
    section = {held};
    section_ = &section;
    limit_ = held ? kFirstBatch : kBatch;
  }
  // Makes room for so many operations in the current batch, and holds the stream if it is the batch's first.
  void reserve(int operations) {
    if (current().operations && current().operations + operations > limit_) release();
    while (running_ == kBanks) collect();
    Bank& bank = current();
    if (!bank.operations) {
      bank.section = section_;
      ++section_->batches;
      bank.gate->open = 0, bank.gate->expired = 0;
      if (section_->held) hold_stream<<<1, 1, 0, stream_>>>(bank.gate, kHoldLimitNs);
      TA_CHECK(cudaGetLastError());
    }
    bank.operations += operations;
  }
  void start() { TA_CHECK(cudaEventRecord(current().events[2 * current().targets.size()], stream_)); }
  void stop(int64_t* elapsed_ns) {
    Bank& bank = current();
    TA_CHECK(cudaEventRecord(bank.events[2 * bank.targets.size() + 1], stream_));
    bank.targets.push_back(elapsed_ns);
  }
  // Lets the current batch run.
  void release() {
    if (running_ == kBanks || !current().operations) return;
    Bank& bank = current();
    TA_CHECK(cudaEventRecord(bank.done, stream_));
    bank.gate->open = 1;
    ++running_;
    limit_ = std::min(2 * limit_, kBatch);
  }
  // Until all intervals of `section` are read.
  void wait(Section& section) {
    if (section_ == &section) release();
    while (section.batches) collect();
  }
  // What an interval adds to the launches in it: of kernels that do nothing, one launch and three tell.
  int64_t overhead_ns(bool* expired) {
    constexpr int kPairs = 15;
    int64_t one[kPairs], three[kPairs];
    Section section;
    begin(section, true);
    for (int i = 0; i < 2 * kPairs; ++i) {
      const int launches = i % 2 ? 3 : 1;
      reserve(launches + 2);
      start();
      for (int repeat = 0; repeat < launches; ++repeat) do_nothing<<<1, 32, 0, stream_>>>();
      stop(i % 2 ? &three[i / 2] : &one[i / 2]);
    }
    TA_CHECK(cudaGetLastError());
    wait(section);
    *expired = section.expired;
    std::nth_element(one, one + kPairs / 2, one + kPairs);
    std::nth_element(three, three + kPairs / 2, three + kPairs);
    return std::max<int64_t>(0, one[kPairs / 2] - (three[kPairs / 2] - one[kPairs / 2]) / 2);
  }
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
    Section* section = nullptr;
    int operations = 0;
  };
  // The one that is filled; there is none while all banks run.
  Bank& current() { return banks_[(first_ + running_) % kBanks]; }
  // Waits for the oldest batch that runs, and reads its intervals.
  void collect() {
    Bank& bank = banks_[first_];
    TA_CHECK(cudaEventSynchronize(bank.done));
    bank.section->expired |= bank.section->held && bank.gate->expired;
    for (size_t i = 0; i < bank.targets.size(); ++i) {
      float ms = 0;
      TA_CHECK(cudaEventElapsedTime(&ms, bank.events[2 * i], bank.events[2 * i + 1]));
      *bank.targets[i] = int64_t(double(ms) * 1e6 + 0.5);
    }
    --bank.section->batches;
    bank.targets.clear(), bank.operations = 0, bank.section = nullptr;
    first_ = (first_ + 1) % kBanks, --running_;
  }

  cudaStream_t stream_ = nullptr;
  Bank banks_[kBanks];
  Section* section_ = nullptr;
  int first_ = 0, running_ = 0;  // of the banks: the oldest batch that runs, and how many do
  int limit_ = kFirstBatch;
};

}  // namespace tilearena
