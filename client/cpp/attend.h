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
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/access.h"
#include "client/cpp/call_timing.h"
#include "client/cpp/input_chunks.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct AttendOutputs {
  std::span<std::byte> out;  // [tokens, heads, value_dim] of the spec's dtype
  std::span<std::byte> lse;  // float32 [tokens, heads]; empty: not wanted
};

// How far an attempt of a job is.
struct AttendProgress {
  std::string job_id;
  int attempt = 0;            // as Open says it: AttendOptions::attempt, and one more each time
  absl::Status last_failure;  // of the attempt before; OK in the first
  absl::Duration wait;        // from last_failure to this attempt's start, at least
  bool away = false;          // there is no connection: this attempt starts once there is
  bool admitted = false;
  int jobs_before = 0;          // in the queue, until admitted
  int workers = 0;              // that share the job, once admitted
  int64_t bytes_sent = 0;       // of bytes_to_send: payloads of coordinates, Q, K and V
  int64_t bytes_to_send = 0;    // grows when rows are asked for again
  double compute_fraction = 0;  // 0 to 1, as the service last said
  int64_t rows_placed = 0;      // of OUT, of `tokens`
  int64_t tokens = 0;
};

inline constexpr absl::Duration kOutageTimeout = absl::Seconds(30);

struct AttendOptions {
  std::string job_id;  // empty: drawn, so that attempts are known to be of one job
  int attempt = 0;     // of the first; a newer attempt of a job fences an older one
  // 1: a failure is final. Attempts that find the service away do not count; with a deadline those
  // that find it full do not count either.
  int max_attempts = 10;
  absl::Duration deadline = absl::InfiniteDuration();  // of the whole call, all attempts together
  // How long one outage may take: the service cannot be reached, starts, drains, or has no workers.
  // Not given: until the deadline, or kOutageTimeout where there is none.
  std::optional<absl::Duration> outage_timeout;

  // Payload bytes of a chunk, at most; the service may ask for less.
  // 1 MiB and 4 MiB reach the same rate over loopback (AMD EPYC Zen 4, 2 cores, gRPC 1.51).
  int64_t chunk_bytes = 1 << 20;

  // Rows are sent again when the service lost them with a worker: until the report the client's
  // side of the stream stays open. false: the service has what it was sent and nothing more.
  bool can_resend = true;

  // The report has spans: what went on from when to when.
  bool want_trace = false;

  // The caller's trace, as W3C's Trace Context has it; the service logs it. Empty: none.
  std::string traceparent;

  // Called when an attempt has failed and another will follow (`attempt` is the new one's), after
  // each chunk sent and each message received, by one thread at a time. Must return soon.
  std::function<void(const AttendProgress&)> progress;

  // Asked some ten times a second, by one thread at a time; true ends the call with CANCELLED.
  std::function<bool()> cancelled;

  Access access;  // of calls that name a server

  CallTiming timing;
};

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

}  // namespace hilbert_ring::client
