// Rows for a worker that shares no memory with the coordinator, gathered into messages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/rows/row_router.h"
#include "wire/payload.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

// The messages of one chunk to one worker.
class RowMessages {
 public:
  // pool: whose buffers hold MostPayloadBytes of the job; outlives the messages' making.
  RowMessages(v1::Tensor tensor, int64_t row_bytes, wire::SlicePool& pool);

  // Takes the run's rows from the payload; runs come in the order of the chunk.
  void Add(const RowRun& run, wire::PayloadReader& payload);

  // All that was added, as RunRequests, each with a checksum: rows that follow each other as a
  // range, others listed.
  std::vector<grpc::ByteBuffer> Take();

 private:
  struct Message {
    v1::ShardRows fields;  // but the payload
    std::shared_ptr<char[]> payload;
  };

  void AddRows(int64_t local_row, int64_t rows, wire::PayloadReader& payload);

  v1::Tensor tensor_;
  int64_t row_bytes_;
  int64_t most_rows_;  // of a message
  wire::SlicePool& pool_;
  std::vector<Message> messages_;
};

}  // namespace hilbert_ring::server
