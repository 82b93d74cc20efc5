// One attention job, as a client sees it.
//
//   AttendInputs inputs{.spec = spec, .q = q, .k = k, .v = v};  // bytes in memory or mapped files
//   AttendOutputs outputs{.out = out, .lse = lse};              // written as rows arrive
//   const AttendOptions options{.job_id = "night-17"};
//   absl::StatusOr<v1::Report> report = Attend("localhost:8001", inputs, outputs, options);
//
// The call sends Open and waits until the service admits the job. Then a thread of its own sends
// the chunks, coordinates first, while the calling thread puts output rows in place, so that
// neither waits for the other: a service that is slow to take input slows the sender alone. Rows
// that the service loses with a worker are sent again when it asks for them. When it is gone, busy
// or cannot go on without a worker, the job is tried again under the same id (client/cpp/retry.h
// says when), from its first row. When the call returns, both threads are done and nothing refers
// to inputs or outputs any more.
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

// The inputs of an attention job.
struct AttendInputs {
  JobSpec spec;
  // Row-major, little-endian, of the spec's dtype. Not copied: they must outlive the call.
  std::span<const std::byte> q;  // [tokens, heads, head_dim]
  std::span<const std::byte> k;  // [tokens, kv_heads, head_dim]
  std::span<const std::byte> v;  // [tokens, kv_heads, value_dim]

  // Fills coordinates [rows, axes] from first_row on. Needed when the ordering has coordinates;
  // called by one thread at a time, in order of rows; then again, for any rows, when the service
  // asks for them or the job is tried again.
  std::function<void(int64_t first_row, std::span<uint32_t> values)> coordinates;

  // Told, if set, that bytes [begin, end) of Q, K or V were sent. They are read, sent and told
  // again when the service asks for them or the job is tried again. Called by the sending thread.
  std::function<void(v1::Tensor tensor, int64_t begin, int64_t end)> sent;
};

// OK when the spec is valid and the tensors have its sizes. INVALID_ARGUMENT or OUT_OF_RANGE,
// naming the field, otherwise.
absl::Status CheckInputs(const AttendInputs& inputs);

struct AttendOutputs {
  std::span<std::byte> out;  // [tokens, heads, value_dim] of the spec's dtype
  std::span<std::byte> lse;  // float32 [tokens, heads]; empty: not wanted
};

// OK when the outputs have the sizes that the spec, which is valid, gives them. INVALID_ARGUMENT,
// naming the tensor, otherwise.
absl::Status CheckOutputs(const JobSpec& spec, const AttendOutputs& outputs);

using AttendProgress = JobProgress;
using AttendOptions = JobOptions;

// server: as of Connect. A service that is away is tried again at once when it is back (within a
// second).
//
// The report of a job whose outputs are complete: every row came once, with the right checksum. On
// any error the contents of outputs are undefined; the error is that of the last attempt, and says
// how many were made if there were several. INVALID_ARGUMENT, OUT_OF_RANGE: inputs, outputs or
// options that contradict the spec; nothing was sent. DATA_LOSS: corrupt, repeated or missing
// output. INTERNAL: the service broke the protocol. DEADLINE_EXCEEDED, CANCELLED: as asked. Other
// errors are the service's own, with their reason (wire::ReasonOf).
absl::StatusOr<v1::Report> Attend(const std::string& server, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options = {});

// The same over a channel of the caller's, whose arguments say how soon a lost connection is made
// again.
absl::StatusOr<v1::Report> Attend(const std::shared_ptr<grpc::Channel>& channel,
                                  const AttendInputs& inputs, const AttendOutputs& outputs,
                                  const AttendOptions& options = {});

// The same over a connector (client/cpp/connector.h), which keeps the last attempt's channel.
absl::StatusOr<v1::Report> Attend(Connector& connector, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options);

}  // namespace hilbert_ring::client
