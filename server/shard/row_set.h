// A set of rows of [0, size), as ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace hilbert_ring::server {

struct RowSpan {
  int64_t begin = 0, end = 0;
  bool operator==(const RowSpan&) const = default;
};

// Rows of lost shards: slots, and numbers of a rectangular job's queries.
struct LostRows {
  std::vector<RowSpan> slots, queries;
};

class RowSet {
 public:
  explicit RowSet(int64_t size) : size_(size) {}

  // Adds [begin, end), not empty; false without effect if a row of it is there already.
  bool Add(int64_t begin, int64_t end);

  void Remove(int64_t begin, int64_t end);

  int64_t size() const { return size_; }
  int64_t count() const { return count_; }
  size_t fragments() const { return ranges_.size(); }
  const std::map<int64_t, int64_t>& ranges() const { return ranges_; }  // begin -> end

  // The first missing rows from `row` on; empty at size() without any.
  RowSpan GapFrom(int64_t row) const;

 private:
  int64_t size_;
  int64_t count_ = 0;
  std::map<int64_t, int64_t> ranges_;
};

}  // namespace hilbert_ring::server
