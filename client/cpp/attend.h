// Runs one attention job.
//
//   AttendInputs inputs{.spec = spec, .q = q, .k = k, .v = v};  // bytes in memory or mapped files
//   AttendOutputs outputs{.out = out, .lse = lse};              // written as rows arrive
//   const AttendOptions options{.job_id = "night-17"};
//   absl::StatusOr<v1::Report> report = Attend("localhost:8001", inputs, outputs, options);
//
// The call sends Open and waits until the service admits the job. Then a thread of its own sends
// the chunks, coordinates first, while the calling thread places output rows. Neither waits for the
// other, so slow input slows only the sender. The call sends rows again if the service lost them
// with a worker and requests them. If the service is gone or busy, or lost a worker, the job starts
// again from its first row under the same id (client/cpp/retry.h). When the call returns, both
// threads have ended, and nothing refers to inputs or outputs any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/job_options.h"
#include "engine/spec/job_spec.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

class Connector;

struct AttendInputs {
  JobSpec spec;
  // Row-major, little-endian, of the spec's dtype. Not copied: they must outlive the call.
  std::span<const std::byte> q;  // [tokens, heads, head_dim]
  std::span<const std::byte> k;  // [KeyTokens(spec), kv_heads, head_dim]
  std::span<const std::byte> v;  // [KeyTokens(spec), kv_heads, value_dim]

  // Fills coordinates [rows, axes] from first_row on. Needed if the ordering has coordinates.
  // Called by one thread at a time, in order of rows. A resend or a retry calls it again for any
  // rows.
  std::function<void(int64_t first_row, std::span<uint32_t> values)> coordinates;

  // [KeyTokens(spec), axes], NaN or at most kMostBiasCoordinate in magnitude. Needed if biases
  // measure coordinates. They must outlive the call.
  std::span<const float> bias_coordinates;

  // Called by the sending thread when bytes [begin, end) of Q, K or V were sent. A resend or a
  // retry reads and sends them again, and calls this again. May be empty.
  std::function<void(v1::Tensor tensor, int64_t begin, int64_t end)> sent;
};

// Checks the spec and the sizes of the tensors. INVALID_ARGUMENT or OUT_OF_RANGE, with the field.
absl::Status CheckInputs(const AttendInputs& inputs);

struct AttendOutputs {
  std::span<std::byte> out;  // [tokens, heads, value_dim] of the spec's dtype
  std::span<std::byte> lse;  // float32 [tokens, heads]; empty: not wanted
};

absl::Status CheckOutputs(const JobSpec& spec, const AttendOutputs& outputs);

using AttendProgress = JobProgress;
using AttendOptions = JobOptions;

// server: as in Connect. If the service is away, the call connects again within a second of its
// return.
//
// Returns the report of a job with complete outputs: every row came once, with the right checksum.
// On an error the contents of outputs are undefined. The error is that of the last attempt, with
// the number of attempts if above 1.
// INVALID_ARGUMENT, OUT_OF_RANGE: inputs, outputs or options contradict the spec; nothing was sent.
// DATA_LOSS: corrupt, repeated or missing output. INTERNAL: the service broke the protocol.
// DEADLINE_EXCEEDED, CANCELLED: by the options. Other errors are the service's own, with their
// reason (wire::ReasonOf).
absl::StatusOr<v1::Report> Attend(const std::string& server, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options = {});

// Uses the caller's channel, whose arguments set the pace of reconnects.
absl::StatusOr<v1::Report> Attend(const std::shared_ptr<grpc::Channel>& channel,
                                  const AttendInputs& inputs, const AttendOutputs& outputs,
                                  const AttendOptions& options = {});

// Uses a connector (client/cpp/connector.h), which keeps the last attempt's channel.
absl::StatusOr<v1::Report> Attend(Connector& connector, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options);

}  // namespace hilbert_ring::client
