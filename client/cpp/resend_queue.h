// The rows that the service has asked for again and that are not sent yet.
//
//   queue.Add(resend);
//   while (!queue.empty()) Send(queue.Take(most_rows));
//
// What goes ahead comes first, then the others in order of rows, so that those of a token travel
// together.
// Rows that are asked for once more while they wait are sent once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "client/cpp/job_tensors.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// A set of rows, as ranges that do not touch. Memory grows with their number.
class RowRanges {
 public:
  struct Range {
    int64_t first_row = 0;
    int64_t rows = 0;
  };

  // How many of the rows are new to the set.
  int64_t Add(Range range);

  // The lowest rows, at most so many, all of one range. Must not be empty.
  Range Take(int64_t most_rows);

  bool empty() const { return ends_.empty(); }
  int64_t first_row() const { return ends_.begin()->first; }  // must not be empty

 private:
  std::map<int64_t, int64_t> ends_;  // by first row: the row behind the last
};

// Used by one thread at a time.
class ResendQueue {
 public:
  // tensors must outlive the object.
  explicit ResendQueue(const JobTensors& tensors) : tensors_(tensors) {}

  // The payload bytes that were added.
  int64_t Add(const v1::Resend& resend);

  struct Rows {
    const InputTensor* input = nullptr;
    RowRanges::Range range;
  };

  // What is sent next, most_rows(input) of it at most. Must not be empty.
  Rows Take(const std::function<int64_t(const InputTensor&)>& most_rows);

  bool empty() const;

 private:
  const JobTensors& tensors_;
  std::map<v1::Tensor, RowRanges> waiting_;
};

}  // namespace hilbert_ring::client
