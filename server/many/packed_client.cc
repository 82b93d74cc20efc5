#include "server/many/packed_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {

PackedClient::PackedClient(const PackedJobs& jobs, JobStop& stop)
    : jobs_(jobs), stop_(stop), chunks_(jobs.chunks()) {}

absl::StatusOr<bool> PackedClient::Read(ClientMessage& message, const JobStop& stop) {
  RETURN_IF_ERROR(stop.why());
  RETURN_IF_ERROR(stop_.why());
  const size_t at = next_++;
  if (at == 0) {
    *message.request.mutable_open() = jobs_.open();
    return true;
  }
  if (at > chunks_.size()) return false;
  const PackedChunk& packed = chunks_[at - 1];
  v1::Chunk& chunk = *message.request.mutable_chunk();
  chunk.set_tensor(packed.tensor);
  chunk.set_first_row(packed.first_row);
  chunk.set_rows(packed.chunk->rows());
  chunk.set_crc32c(packed.chunk->crc32c());
  message.payload = wire::Payload(packed.chunk->payload());
  return true;
}

absl::StatusOr<bool> PackedClient::Write(const v1::OutputChunk& chunk, std::string_view payload,
                                         std::shared_ptr<const void> /*owner*/,
                                         Clock::duration /*patience*/, const JobStop& stop,
                                         Leaves /*leaves*/) {
  RETURN_IF_ERROR(stop.why());
  if (chunk.rows() < 1) return true;
  const int64_t row_bytes = std::ssize(payload) / chunk.rows();
  const MutexLock lock(mutex_);
  auto output = std::ranges::find(outputs_, chunk.tensor(), &Output::tensor);
  if (output == outputs_.end()) {
    outputs_.push_back({chunk.tensor(), row_bytes, std::string(jobs_.all_tokens() * row_bytes, 0)});
    output = std::prev(outputs_.end());
  }
  if (chunk.tokens().empty()) {
    RETURN_IF_ERROR(Put(*output, chunk.first_token(), chunk.rows(), payload));
    return true;
  }
  for (const int64_t token : chunk.tokens()) {
    RETURN_IF_ERROR(Put(*output, token, 1, payload.substr(0, row_bytes)));
    payload.remove_prefix(std::min<size_t>(payload.size(), row_bytes));
  }
  return true;
}

absl::Status PackedClient::Put(Output& output, int64_t token, int64_t rows,
                               std::string_view payload) const {
  if (token < 0 || token > jobs_.all_tokens() - rows ||
      std::ssize(payload) != rows * output.row_bytes) {
    return absl::InternalError(absl::StrCat(wire::TensorName(output.tensor), ": ", rows,
                                            " rows of an output do not lie in their job"));
  }
  std::memcpy(output.rows.data() + token * output.row_bytes, payload.data(), payload.size());
  return absl::OkStatus();
}

void PackedClient::AddOutputs(int64_t job, v1::SmallResult& result) {
  const MutexLock lock(mutex_);
  for (const Output& output : outputs_) {
    v1::OutputChunk& chunk = *result.add_outputs();
    chunk.set_tensor(output.tensor);
    chunk.set_rows(jobs_.tokens(job));
    chunk.set_payload(output.rows.substr(jobs_.first_token(job) * output.row_bytes,
                                         jobs_.tokens(job) * output.row_bytes));
    chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  }
  std::ranges::sort(*result.mutable_outputs(), {}, &v1::OutputChunk::tensor);
}

}  // namespace hilbert_ring::server
