// Runs one attention job without end: the caller supplies rows, and results come back in order.
//
//   AttendStreamCalls calls{.spec = spec};               // without tokens
//   calls.next = [&](const std::stop_token& over) {      // the rows that follow; none: the end
//     return source.Read(over) ? std::optional(StreamBlock{...}) : std::nullopt;
//   };
//   calls.take = [&](const StreamedRows& rows) { return out.Append(rows.bytes); };
//   absl::StatusOr<v1::Report> report = AttendStream("localhost:8001", calls, options);
//
// A thread of the call's own requests rows and sends them, while the calling thread takes results.
// A caller that takes no results is sent none. It is asked only for rows that the service can hold
// (AttendStream in attention.proto). The call keeps no rows, so after the first row it is not
// retried. Taken results are final: a new stream may begin behind them, at the multiple of the
// epoch's tokens that `epoch` reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/job_options.h"
#include "engine/spec/job_spec.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// The next rows, row-major, little-endian, of the spec's dtype. They must stay unchanged until the
// next call of `next`.
struct StreamBlock {
  int64_t rows = 0;              // at least 1
  std::span<const std::byte> q;  // [rows, heads, head_dim]
  std::span<const std::byte> k;  // [rows, kv_heads, head_dim]
  std::span<const std::byte> v;  // [rows, kv_heads, value_dim]
};

// Rows of a result, in order within each tensor. Valid during the call.
struct StreamedRows {
  v1::Tensor tensor = v1::TENSOR_OUT;  // or TENSOR_LSE, behind OUT of the same rows
  int64_t first_token = 0;
  int64_t rows = 0;
  std::span<const std::byte> bytes;  // of the spec's dtype; LSE: float32
};

struct AttendStreamCalls {
  JobSpec spec;  // tokens is 0; sequence_lengths repeat
  bool want_lse = false;
  int64_t epoch_tokens = 0;  // 0: the service's maximum

  // Returns the next rows; nothing: the input has ended. May wait for rows, but not once `over` is
  // set: the call has ended. Called by one thread, after the service has admitted the stream. An
  // error ends the call with it.
  std::function<absl::StatusOr<std::optional<StreamBlock>>(const std::stop_token& over)> next;

  // Called by the calling thread. An error ends the call with it.
  std::function<absl::Status(const StreamedRows&)> take;

  // Called by the calling thread once an epoch's rows were all taken; may be empty.
  std::function<void(const v1::Epoch&)> epoch;
};

// server: as in Connect. Returns the report of a stream whose rows were all computed and taken.
// Errors as of Attend (client/cpp/attend.h), and those of `next` and `take`. The options can_resend
// and want_trace have no effect.
absl::StatusOr<v1::Report> AttendStream(const std::string& server, const AttendStreamCalls& calls,
                                        const JobOptions& options = {});

// Uses the caller's channel: one of ConnectForStream (client/cpp/service.h) bounds its read-ahead.
absl::StatusOr<v1::Report> AttendStream(const std::shared_ptr<grpc::Channel>& channel,
                                        const AttendStreamCalls& calls,
                                        const JobOptions& options = {});

}  // namespace hilbert_ring::client
