// One problem from its proof to its last sample. The results are waited for in begin() and collect() alone, so that two
// problems can take turns on the stream; enqueuing waits where the clock's batches are all in use or a buffer grows.
#pragma once
#include "product.cuh"

#include <cmath>

namespace tilearena {

// Hot, the proof is the pilot, too: a launch that warms up, and then so many that tell how long one takes. Of products that
// are so large (multiply-adds times bits) that one launch nearly fills a sample, that one tells, cold as it is.
constexpr int kPilotLaunches = 2;
constexpr int64_t kPilotBitMacs = int64_t(1) << 37;

class Problem : Product {
 public:
  Problem(Context& context, const ta_job& job, int slot)
      : Product(context, job, slot), launches_(job.candidates, 1), twin_(job.candidates, -1),
        pilot_ns_(job.candidates, 0), verdicts_(context.verdicts[slot]) {
    verdicts_.reserve(j_.candidates);
    for (int i = 0; i < j_.candidates; ++i)
      for (int j = 0; j < i && !is_vendor(i) && twin_[i] < 0; ++j)
        if (entry_[j] == entry_[i]) twin_[i] = j;
    hot_ = operands();
    hot_d_ = output();
    prove();
  }

  // Waits for the proof, and settles how often each candidate is launched in one sample; false if holds expired again and
  // again: such a pilot has launch cost in it.
  bool begin() {
    for (int attempt = 1;; ++attempt) {
      c_.clock.wait(section_);
      conclude();
      if (!section_.expired) break;
      if (attempt == kAttempts) return false;
      prove();
    }
    if (j_.launches > 0) std::fill(launches_.begin(), launches_.end(), j_.launches);
    else if (!j_.cold) choose_launches();
    return true;
  }

  // Enqueues one sample a turn. The output of each candidate's last turn is checked: cold ones that stay intact until the
  // end after all samples, hot ones (all in one place) and large ones between samples.
  void submit(int turns, const int* turn) {
    elapsed_ns_.assign(turns, 0);
    std::vector<int> last(j_.candidates, -1);
    for (int t = 0; t < turns; ++t) last[turn[t]] = t;
    const bool late = checked_late(turns, last);
    std::vector<Operands> last_in(j_.candidates);
    std::vector<int32_t*> last_d(j_.candidates, nullptr);
    verdicts_.clear(c_.stream);
    c_.clock.begin(section_, j_.held);
    bool warm = j_.cold;
    for (int t = 0; t < turns; ++t) {
      const int i = turn[t];
      if (!alive(i)) continue;
      // hot: another problem's operands may have been in the L2 since
      if (!warm) c_.clock.reserve(1), launch(i, hot_, hot_d_, 1);
      warm = true;
      const bool is_last = last[i] == t;
      c_.clock.reserve(launches_[i] + (is_last && !late ? 10 : 3));
      Operands in = j_.cold ? operands() : hot_;
      int32_t* d = j_.cold ? output() : hot_d_;
      // The place may hold the right values already: break one element a row, or the last check could not fail. Cold
      // samples are all spoiled, since what runs before a launch makes it slower or faster by up to a per cent.
      if (is_last || j_.cold) spoil(d);
      c_.clock.start();
      timed_launches(i, in, d);
      c_.clock.stop(&elapsed_ns_[t]);
      if (!is_last || !alive(i)) continue;
      last_in[i] = in, last_d[i] = d;
      if (!late) check_last(i, in, d);
    }
    for (int i = 0; i < j_.candidates; ++i)
      if (late && last_d[i] && alive(i)) c_.clock.reserve(8), check_last(i, last_in[i], last_d[i]);
    c_.clock.release();
    verdicts_.copy(c_.stream);
  }

  // Waits for the samples; false if a hold expired.
  bool collect(int64_t* elapsed_ns) {
    c_.clock.wait(section_);
    std::copy(elapsed_ns_.begin(), elapsed_ns_.end(), elapsed_ns);
    const Verdict* verdicts = verdicts_.wait();
    for (int i = 0; i < j_.candidates; ++i)
      if (alive(i) && verdicts[i].rows.count) end(i, TA_WRONG_AFTER, verdicts[i].rows);
    return !section_.expired;
  }

  // Waits for what is under way, whatever comes of it: the clock writes to this problem until then.
  void settle() { c_.clock.wait(section_); }

  void report(const ta_proof& out) const {
    std::copy(launches_.begin(), launches_.end(), out.launches);
    std::copy(outcome_.begin(), outcome_.end(), out.outcome);
    std::copy(detail_.begin(), detail_.end(), out.detail);
  }

 private:
  // Enqueues the proof: every candidate computes the same product into poisoned memory; all of D and both guard bands are
  // checked. Hot, the stream is held, so that the launches tell how long one takes.
  void prove() {
    verdicts_.clear(c_.stream);
    // A kernel's first launch loads it, which may wait for the stream. The vendor may have another kernel for each problem.
    for (int i = 0; i < j_.candidates; ++i)
      if (twin_[i] < 0 && (c_.loaded.insert(entry_[i]).second || (is_vendor(i) && !j_.cold))) launch(i, hot_, hot_d_, 1);
    expect(hot_);
    const bool warm = !j_.cold && int64_t(j_.m) * j_.n * j_.k * j_.bits <= kPilotBitMacs;
    pilot_launches_ = warm ? kPilotLaunches : 1;
    c_.clock.begin(section_, j_.held && !j_.cold);
    for (int i = 0; i < j_.candidates; ++i) {
      if (twin_[i] >= 0 || !alive(i)) continue;  // the control is the default's kernel, which is proved already
      c_.clock.reserve(pilot_launches_ + 6);
      poison(hot_d_);
      if (warm) launch(i, hot_, hot_d_, 1);
      c_.clock.start();
      launch(i, hot_, hot_d_, pilot_launches_);
      c_.clock.stop(&pilot_ns_[i]);
      if (alive(i)) check_thoroughly(hot_, hot_d_, verdicts_.device(i));
    }
    c_.clock.release();
    verdicts_.copy(c_.stream);
  }

  void end(int candidate, ta_outcome outcome, const Fault& fault) {
    outcome_[candidate] = outcome, detail_[candidate] = int64_t(~fault.not_first);
  }

  // Which candidates passed the proof.
  void conclude() {
    const Verdict* verdicts = verdicts_.wait();
    for (int i = 0; i < j_.candidates; ++i) {
      const int twin = twin_[i];
      if (twin >= 0) outcome_[i] = outcome_[twin], detail_[i] = detail_[twin], pilot_ns_[i] = pilot_ns_[twin];
      if (!alive(i)) continue;
      const Verdict& v = verdicts[i];
      if (v.guards.count) end(i, TA_GUARD_TOUCHED, v.guards);
      else if (v.rows.count) end(i, TA_WRONG_ROWS, v.rows);
      else if (v.elements.count) end(i, TA_WRONG_ELEMENT, v.elements);
    }
  }

  // Hot samples fill at least hot_fill_ns. All templates take as many launches as the fastest of them needs, so that what
  // an interval adds weighs on all alike; a kernel of the vendor takes as many as it needs itself.
  void choose_launches() {
    for (int i = 0; i < j_.candidates; ++i) {
      double launch_ns = INFINITY;
      for (int j = 0; j < j_.candidates; ++j)
        if (alive(j) && (is_vendor(i) ? j == i : !is_vendor(j)))
          launch_ns = std::min(launch_ns, std::max(1.0, double(pilot_ns_[j] - c_.overhead_ns) / pilot_launches_));
      // a little on top, since not every sample is as long as the pilot was
      const double wanted = (1.05 * double(j_.hot_fill_ns) - double(c_.overhead_ns)) / launch_ns;
      launches_[i] = std::max(1, int(std::min<double>(j_.hot_max_launches, std::ceil(wanted))));
    }
  }

  // Whether the last output of each candidate may be checked after all samples: nothing has written to it since, and the
  // operands that the check touches again are as far from the next launch's as those that were just launched.
  bool checked_late(int turns, const std::vector<int>& last) const {
    if (!j_.cold) return false;
    int first = turns;
    for (int t : last)
      if (t >= 0) first = std::min(first, t);
    const int64_t most = *std::max_element(launches_.begin(), launches_.end()) * (turns - first);
    return most <= c_.outputs.ring.disjoint(round_up(guarded_bytes(), kAlign)) &&
           most * operand_slice() <= c_.operands.ring.idle();
  }
  void check_last(int i, const Operands& in, int32_t* d) {
    if (j_.cold) expect(in);
    check(d, verdicts_.device(i));
  }
  // Cold, every launch has operands of its own; `in` and `d` are those of the last one then, which alone is checked. Where a
  // sample is of several launches (for comparisons), that one was not spoiled.
  void timed_launches(int i, Operands& in, int32_t*& d) {
    if (!j_.cold) return launch(i, in, d, launches_[i]);
    for (int repeat = 0; repeat < launches_[i] && alive(i); ++repeat) {
      if (repeat) in = operands(), d = output();
      launch(i, in, d, 1);
    }
  }

  std::vector<int> launches_, twin_;
  std::vector<int64_t> pilot_ns_, elapsed_ns_;
  int pilot_launches_ = 1;
  Verdicts& verdicts_;
  Section section_;
  Operands hot_{};
  int32_t* hot_d_ = nullptr;
};

}  // namespace tilearena
