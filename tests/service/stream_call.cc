#include "tests/service/stream_call.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/spec/numbers.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {
namespace {

std::span<const std::byte> Rows(const std::string& tensor, int64_t row_bytes, int64_t first,
                                int64_t rows) {
  return {reinterpret_cast<const std::byte*>(tensor.data()) + first * row_bytes,
          static_cast<size_t>(rows * row_bytes)};
}

void Put(const client::StreamedRows& rows, const JobSpec& spec, EngineResult& result) {
  const bool is_out = rows.tensor == v1::TENSOR_OUT;
  const int64_t width = is_out ? spec.heads * spec.value_dim : spec.heads;
  std::vector<float>& to = is_out ? result.out : result.lse;
  for (int64_t i = 0; i < rows.rows * width; ++i) {
    to.at(rows.first_token * width + i) =
        LoadElement(is_out ? spec.dtype : DataType::kFloat32,
                    reinterpret_cast<const char*>(rows.bytes.data()), i);
  }
}

}  // namespace

JobSpec StreamOf(const JobSpec& job, std::vector<int64_t> sequence_lengths) {
  JobSpec stream = job;
  stream.tokens = 0;
  stream.sequence_lengths = std::move(sequence_lengths);
  return stream;
}

absl::StatusOr<ServiceResult> AttendInStream(const Cluster& cluster, const JobSpec& job,
                                             const JobSpec& stream, const EngineInputs& inputs,
                                             const StreamSettings& settings) {
  const std::map<v1::Tensor, std::string> tensors = EncodeTensors(job, inputs);
  ServiceResult result;
  result.result.out.assign(job.tokens * job.heads * job.value_dim, NAN);
  result.result.lse.assign(job.tokens * job.heads, NAN);
  int64_t next = 0;
  client::AttendStreamCalls calls{
      .spec = stream, .want_lse = true, .epoch_tokens = settings.epoch_tokens};
  calls.next = [&](const std::stop_token&) -> absl::StatusOr<std::optional<client::StreamBlock>> {
    if (next == job.tokens) return std::nullopt;
    const int64_t first = next;
    const int64_t rows = std::min(settings.block_rows, job.tokens - first);
    next += rows;
    const auto of = [&](v1::Tensor tensor) {
      return Rows(tensors.at(tensor), wire::TensorRowBytes(job, tensor), first, rows);
    };
    return client::StreamBlock{
        .rows = rows, .q = of(v1::TENSOR_Q), .k = of(v1::TENSOR_K), .v = of(v1::TENSOR_V)};
  };
  calls.take = [&](const client::StreamedRows& rows) {
    Put(rows, job, result.result);
    return settings.taken ? settings.taken(rows) : absl::OkStatus();
  };
  calls.epoch = settings.epoch;
  auto report = client::AttendStream(cluster.address(), calls, {.deadline = absl::Seconds(120)});
  if (!report.ok()) return report.status();
  result.report = *std::move(report);
  return result;
}

absl::StatusOr<v1::Report> StreamConstantRows(const Cluster& cluster, const JobSpec& stream,
                                              int64_t rows, const StreamSettings& settings) {
  const auto zeros = [&](v1::Tensor tensor) {
    return std::string(settings.block_rows * wire::TensorRowBytes(stream, tensor), '\0');
  };
  const std::string q = zeros(v1::TENSOR_Q), k = zeros(v1::TENSOR_K), v = zeros(v1::TENSOR_V);
  int64_t next = 0;
  client::AttendStreamCalls calls{.spec = stream, .epoch_tokens = settings.epoch_tokens};
  calls.next = [&](const std::stop_token&) -> absl::StatusOr<std::optional<client::StreamBlock>> {
    const int64_t count = std::min(settings.block_rows, rows - next);
    if (count == 0) return std::nullopt;
    next += count;
    const auto of = [&](const std::string& tensor) {
      return Rows(tensor, std::ssize(tensor) / settings.block_rows, 0, count);
    };
    return client::StreamBlock{.rows = count, .q = of(q), .k = of(k), .v = of(v)};
  };
  calls.take = [&](const client::StreamedRows& taken) {
    return settings.taken ? settings.taken(taken) : absl::OkStatus();
  };
  calls.epoch = settings.epoch;
  return client::AttendStream(cluster.address(), calls, {.deadline = absl::Seconds(120)});
}

}  // namespace hilbert_ring::testing
