// One attention job without end, as a client sees it: rows go in as long as there are any, results
// come back in order.
//
//   AttendStreamCalls calls{.spec = spec};               // without tokens
//   calls.next = [&](const std::stop_token& over) {      // the rows that follow; none: the end
//     return source.Read(over) ? std::optional(StreamBlock{...}) : std::nullopt;
//   };
//   calls.take = [&](const StreamedRows& rows) { return out.Append(rows.bytes); };
//   absl::StatusOr<v1::Report> report = AttendStream("localhost:8001", calls, options);
//
// A thread of the call's own asks for rows and sends them, while the calling thread takes results:
// a caller that takes none is sent none, and is asked for no more rows than the service can hold
// (epochs of a fixed size, AttendStream in attention.proto). Nothing is kept: once rows were asked
// for, a call that fails is not tried again. What was taken is final, so that a new stream may
// begin behind it: at a multiple of the epoch's tokens, which `epoch` tells.
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

// Rows that follow those before. Row-major, little-endian, of the spec's dtype; as they are until
// the next ones are asked for.
struct StreamBlock {
  int64_t rows = 0;              // at least 1
  std::span<const std::byte> q;  // [rows, heads, head_dim]
  std::span<const std::byte> k;  // [rows, kv_heads, head_dim]
  std::span<const std::byte> v;  // [rows, kv_heads, value_dim]
};

// Rows of a result, each tensor's in order. Valid during the call.
struct StreamedRows {
  v1::Tensor tensor = v1::TENSOR_OUT;  // or TENSOR_LSE, behind OUT of the same rows
  int64_t first_token = 0;
  int64_t rows = 0;
  std::span<const std::byte> bytes;  // of the spec's dtype; LSE: float32
};

struct AttendStreamCalls {
  JobSpec spec;  // tokens is 0; sequence_lengths repeat
  bool want_lse = false;
  int64_t epoch_tokens = 0;  // 0: as many as the service takes

  // May wait for rows, but not once `over`: the call has ended. Called by one thread, not before
  // the service has taken the stream. An error ends the call with it.
  std::function<absl::StatusOr<std::optional<StreamBlock>>(const std::stop_token& over)> next;

  // By the calling thread. An error ends the call with it.
  std::function<absl::Status(const StreamedRows&)> take;

  // An epoch's rows were all taken; may be empty. By the calling thread.
  std::function<void(const v1::Epoch&)> epoch;
};

// server: as of Connect. The report of a stream all of whose rows were computed and taken. Errors
// as of Attend (client/cpp/attend.h), and those of `next` and `take`. Of the options it passes over
// can_resend and want_trace.
absl::StatusOr<v1::Report> AttendStream(const std::string& server, const AttendStreamCalls& calls,
                                        const JobOptions& options = {});

// Over a channel of the caller's: ConnectForStream (client/cpp/service.h) bounds what it takes
// ahead.
absl::StatusOr<v1::Report> AttendStream(const std::shared_ptr<grpc::Channel>& channel,
                                        const AttendStreamCalls& calls,
                                        const JobOptions& options = {});

}  // namespace hilbert_ring::client
