#include "server/rows/row_messages.h"

#include <algorithm>

#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

// Bytes of a listed row number on the wire: 7 bits each, rows are below 2^40.
constexpr int64_t kListedRowBytes = 6;

}  // namespace

RowMessages::RowMessages(v1::Tensor tensor, int64_t row_bytes)
    : tensor_(tensor),
      row_bytes_(row_bytes),
      most_rows_(std::max<int64_t>(1, wire::kMaxPayloadBytes / (row_bytes_ + kListedRowBytes))) {}

void RowMessages::Add(const RowRun& run, wire::PayloadReader& payload) {
  for (int64_t row = 0; row < run.rows;) {
    if (messages_.empty() || messages_.back().rows() == most_rows_) {
      messages_.emplace_back().set_tensor(tensor_);
    }
    const int64_t rows = std::min(run.rows - row, most_rows_ - messages_.back().rows());
    AddRows(run.local_row + row, rows, payload);
    row += rows;
  }
}

void RowMessages::AddRows(int64_t local_row, int64_t rows, wire::PayloadReader& payload) {
  v1::ShardRows& message = messages_.back();
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
  message.set_rows(message.rows() + rows);
  std::string& bytes = *message.mutable_payload();
  const size_t before = bytes.size();
  bytes.resize(before + rows * row_bytes_);
  payload.Read(bytes.data() + before, rows * row_bytes_);
}

std::vector<v1::ShardRows> RowMessages::Take() {
  for (v1::ShardRows& message : messages_) message.set_crc32c(wire::Crc32c(message.payload()));
  return std::move(messages_);
}

}  // namespace hilbert_ring::server
