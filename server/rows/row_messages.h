// Rows for a worker that shares no memory with the coordinator, gathered into messages.
#pragma once

#include <cstdint>
#include <vector>

#include "hilbert_ring/v1/worker.pb.h"
#include "server/rows/row_router.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// The messages of one chunk to one worker.
class RowMessages {
 public:
  RowMessages(v1::Tensor tensor, int64_t row_bytes);

  // Takes the run's rows from the payload; runs come in the order of the chunk.
  void Add(const RowRun& run, wire::PayloadReader& payload);

  // All that was added, each with a checksum: rows that follow each other as a range, others
  // listed.
  std::vector<v1::ShardRows> Take();

 private:
  void AddRows(int64_t local_row, int64_t rows, wire::PayloadReader& payload);

  v1::Tensor tensor_;
  int64_t row_bytes_;
  int64_t most_rows_;  // of a message
  std::vector<v1::ShardRows> messages_;
};

}  // namespace hilbert_ring::server
