// A set of rows of [0, size), as ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace hilbert_ring::server {

struct RowSpan {
  int64_t begin = 0, end = 0;
  bool operator==(const RowSpan&) const = default;
};

// Its ranges neither overlap nor touch. Pure.
class RowSet {
 public:
  explicit RowSet(int64_t size) : size_(size) {}

  // Adds [begin, end), within [0, size) and not empty; false when some of it is there already, and
  // then nothing changes.
  bool Add(int64_t begin, int64_t end);

  // Takes out what is there of [begin, end).
  void Remove(int64_t begin, int64_t end);

  int64_t size() const { return size_; }
  int64_t count() const { return count_; }
  size_t fragments() const { return ranges_.size(); }
  const std::map<int64_t, int64_t>& ranges() const { return ranges_; }  // begin -> end

  // The first rows from `row` on that are not there; empty at size() when all are.
  RowSpan GapFrom(int64_t row) const;

 private:
  int64_t size_;
  int64_t count_ = 0;
  std::map<int64_t, int64_t> ranges_;
};

}  // namespace hilbert_ring::server
