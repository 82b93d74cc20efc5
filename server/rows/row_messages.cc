#include "server/rows/row_messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/shard/run_message.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kListedRowBytes = 6;  // 7 bits a byte; rows are below 2^40

}  // namespace

RowMessages::RowMessages(v1::Tensor tensor, int64_t row_bytes, wire::SlicePool& pool)
    : tensor_(tensor),
      row_bytes_(row_bytes),
      most_rows_(std::max<int64_t>(1, wire::kMaxPayloadBytes / (row_bytes_ + kListedRowBytes))),
      pool_(pool) {}

void RowMessages::Add(const RowRun& run, wire::PayloadReader& payload) {
  for (int64_t row = 0; row < run.rows;) {
    if (messages_.empty() || messages_.back().fields.rows() == most_rows_) {
      messages_.push_back({.fields = {}, .payload = pool_.Take()});
      messages_.back().fields.set_tensor(tensor_);
    }
    const int64_t rows = std::min(run.rows - row, most_rows_ - messages_.back().fields.rows());
    AddRows(run.local_row + row, rows, payload);
    row += rows;
  }
}

void RowMessages::AddRows(int64_t local_row, int64_t rows, wire::PayloadReader& payload) {
  v1::ShardRows& message = messages_.back().fields;
  const bool listed = message.local_rows_size() > 0;
  if (message.rows() == 0) {
    message.set_first_local_row(local_row);
  } else if (!listed && local_row != message.first_local_row() + message.rows()) {
    for (int64_t i = 0; i < message.rows(); ++i) {
      message.add_local_rows(message.first_local_row() + i);
    }
    message.clear_first_local_row();
  }
  if (message.local_rows_size() > 0) {
    for (int64_t i = 0; i < rows; ++i) message.add_local_rows(local_row + i);
  }
  payload.Read(messages_.back().payload.get() + message.rows() * row_bytes_, rows * row_bytes_);
  message.set_rows(message.rows() + rows);
}

std::vector<grpc::ByteBuffer> RowMessages::Take() {
  std::vector<grpc::ByteBuffer> requests;
  requests.reserve(messages_.size());
  for (Message& message : messages_) {
    const std::string_view payload(message.payload.get(),
                                   static_cast<size_t>(message.fields.rows() * row_bytes_));
    message.fields.set_crc32c(wire::Crc32c(payload));
    requests.push_back(
        JoinRows(message.fields, wire::SliceOf(payload, std::move(message.payload))));
  }
  messages_.clear();
  return requests;
}

}  // namespace hilbert_ring::server
