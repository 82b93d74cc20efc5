// How a job is called for, and what its caller is told meanwhile: of Attend, AttendStream and
// Encode alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/access.h"
#include "client/cpp/call_timing.h"

namespace hilbert_ring::client {

// How far an attempt of a job is.
struct JobProgress {
  std::string job_id;
  int attempt = 0;            // as Open says it: JobOptions::attempt, and one more each time
  absl::Status last_failure;  // of the attempt before; OK in the first
  absl::Duration wait;        // from last_failure to this attempt's start, at least
  bool away = false;          // there is no connection: this attempt starts once there is
  bool admitted = false;
  int jobs_before = 0;          // in the queue, until admitted
  int workers = 0;              // that share the job, once admitted
  int64_t bytes_sent = 0;       // of bytes_to_send: payloads
  int64_t bytes_to_send = 0;    // grows when rows are asked for again
  double compute_fraction = 0;  // 0 to 1, as the service last said
  bool by_reference = false;    // no row is sent or placed: the workers read and write files
  int64_t layer = 0;            // of an encoder: those that are computed
  int64_t rows_placed = 0;      // of the first output, of `rows`
  int64_t rows = 0;             // tokens, or pooled slides
  int64_t tokens = 0;
  bool stream = false;  // without end: neither tokens, rows nor bytes_to_send are known
  int64_t epochs = 0;   // of a stream: that are done
};

inline constexpr absl::Duration kOutageTimeout = absl::Seconds(30);

struct JobOptions {
  std::string job_id;  // empty: drawn, so that attempts are known to be of one job
  int attempt = 0;     // of the first; a newer attempt of a job fences an older one
  // 1: a failure is final. Attempts that find the service away do not count; with a deadline those
  // that find it full do not count either.
  int max_attempts = 10;
  absl::Duration deadline = absl::InfiniteDuration();  // of the whole call, all attempts together
  absl::Duration spent = absl::ZeroDuration();         // of it, before this call
  // Errors after which there is no other attempt, whatever retry.h says of them; null: none.
  std::function<bool(const absl::Status&)> final;
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
  std::function<void(const JobProgress&)> progress;

  // Asked some ten times a second, by one thread at a time; true ends the call with CANCELLED.
  std::function<bool()> cancelled;

  Access access;  // of calls that name a server

  CallTiming timing;
};

}  // namespace hilbert_ring::client
