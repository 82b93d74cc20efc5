// Rows that the service requested again and that are not sent yet.
//
//   queue.Add(resend);
//   while (!queue.empty()) Send(queue.Take(most_rows));
//
// Coordinates come first, then bands in order of rows, so that the rows of a token travel together.
// Rows requested twice while they wait are sent once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "client/cpp/job_request.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// A set of rows as ranges that do not touch. Memory grows with the number of ranges.
class RowRanges {
 public:
  struct Range {
    int64_t first_row = 0;
    int64_t rows = 0;
  };

  // Returns the number of rows new to the set.
  int64_t Add(Range range);

  // Removes and returns the lowest rows of one range, at most most_rows. The set must not be empty.
  Range Take(int64_t most_rows);

  bool empty() const { return ends_.empty(); }
  int64_t first_row() const { return ends_.begin()->first; }  // the set must not be empty

 private:
  std::map<int64_t, int64_t> ends_;  // first row to the row behind the last
};

// Used by one thread at a time.
class ResendQueue {
 public:
  // tensors must outlive the object.
  explicit ResendQueue(const JobTensors& tensors) : tensors_(tensors) {}

  // Returns the payload bytes added.
  int64_t Add(const v1::Resend& resend);

  struct Rows {
    const InputTensor* input = nullptr;
    RowRanges::Range range;
  };

  // Returns the next rows to send, at most most_rows(input). The queue must not be empty.
  Rows Take(const std::function<int64_t(const InputTensor&)>& most_rows);

  bool empty() const;

 private:
  const JobTensors& tensors_;
  std::map<v1::Tensor, RowRanges> waiting_;
};

}  // namespace hilbert_ring::client
