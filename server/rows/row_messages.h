// Messages with rows of a chunk for a worker that shares no memory.
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

class RowMessages {
 public:
  // pool: of the job's MostPayloadBytes; outlives this.
  RowMessages(v1::Tensor tensor, int64_t row_bytes, wire::SlicePool& pool);

  void Add(const RowRun& run, wire::PayloadReader& payload);

  // Returns RunRequests with checksums; consecutive rows as a range, others listed.
  std::vector<grpc::ByteBuffer> Take();

 private:
  struct Message {
    v1::ShardRows fields;  // without the payload
    std::shared_ptr<char[]> payload;
  };

  void AddRows(int64_t local_row, int64_t rows, wire::PayloadReader& payload);

  v1::Tensor tensor_;
  int64_t row_bytes_;
  int64_t most_rows_;  // in a message
  wire::SlicePool& pool_;
  std::vector<Message> messages_;
};

}  // namespace hilbert_ring::server
