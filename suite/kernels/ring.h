// Where the next slice of a ring of memory begins, so that what it overlaps was handed out long ago. Plain arithmetic.
#pragma once
#include <stdint.h>

namespace tilearena {

// Slices of at most `largest` bytes each. A slice overlaps an earlier one only if another slice, and at least `idle` bytes,
// were handed out in between.
class Ring {
 public:
  Ring() = default;
  Ring(int64_t largest, int64_t idle) : largest_(largest), idle_(idle) {}
  int64_t size() const { return 2 * (largest_ + idle_); }
  int64_t largest() const { return largest_; }
  int64_t idle() const { return idle_; }

  // Offset of the next slice.
  int64_t slice(int64_t bytes) {
    if (bytes > idle_)  // one alone is distance enough: behind the last ones, or at that end of the ring that is far
      cursor_ = cursor_ <= idle_ ? cursor_ : cursor_ <= largest_ + 2 * idle_ ? size() - bytes : 0;
    else if (cursor_ + bytes > size())
      cursor_ = 0;
    cursor_ += bytes;
    return cursor_ - bytes;
  }
  // So many consecutive slices of this size do not overlap.
  int64_t disjoint(int64_t bytes) const { return bytes > idle_ ? 2 : size() / bytes - 1; }

 private:
  int64_t largest_ = 0, idle_ = 0, cursor_ = 0;
};

}  // namespace tilearena
