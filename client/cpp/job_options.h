// Options and progress of Attend, AttendStream and Encode.
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

struct JobProgress {
  std::string job_id;
  int attempt = 0;            // as in Open: JobOptions::attempt plus the number of earlier attempts
  absl::Status last_failure;  // of the attempt before; OK in the first
  absl::Duration wait;        // least time from last_failure to this attempt's start
  bool away = false;          // this attempt starts once there is a connection
  bool admitted = false;
  int jobs_before = 0;          // in the queue, until admitted
  int workers = 0;              // of the job, once admitted
  int64_t bytes_sent = 0;       // payloads, of bytes_to_send
  int64_t bytes_to_send = 0;    // grows with each resend
  double compute_fraction = 0;  // 0 to 1, the service's last value
  bool by_reference = false;    // workers read and write files; no row is sent or placed
  int64_t layer = 0;            // of an encoder: computed layers
  int64_t rows_placed = 0;      // of the first output, out of `rows`
  int64_t rows = 0;             // tokens, or pooled slides
  int64_t tokens = 0;
  bool stream = false;  // without end: tokens, rows and bytes_to_send are unknown
  int64_t epochs = 0;   // finished epochs of a stream
};

inline constexpr absl::Duration kOutageTimeout = absl::Seconds(30);

struct JobOptions {
  std::string job_id;  // empty: drawn, so that all attempts share one id
  int attempt = 0;     // number of the first attempt; a newer attempt of a job fences an older one
  // Attempts that count, at most; 1: no retries. An attempt that finds the service away does not
  // count; with a deadline, neither does an attempt that finds it full.
  int max_attempts = 10;
  absl::Duration deadline = absl::InfiniteDuration();  // of the whole call, all attempts together
  absl::Duration spent = absl::ZeroDuration();         // part of the deadline used before this call
  // Returns whether an error is final despite retry.h; may be empty.
  std::function<bool(const absl::Status&)> final;
  // Time limit of one outage: the service is unreachable, starts, drains, or has no workers. Not
  // given: the deadline, or kOutageTimeout without one.
  std::optional<absl::Duration> outage_timeout;

  // Payload bytes of a chunk, at most; the service may set a lower limit. 1 MiB and 4 MiB reach the
  // same rate over loopback (AMD EPYC Zen 4, 2 cores, gRPC 1.51).
  int64_t chunk_bytes = 1 << 20;

  // The client's side of the stream stays open until the report, and lost rows are sent again.
  // false: each row is sent once.
  bool can_resend = true;

  bool want_trace = false;  // the report has spans

  // The caller's trace, in the format of W3C's Trace Context; the service logs it. Empty: none.
  std::string traceparent;

  // Called before each retry (with the new `attempt`), and after each chunk sent and each message
  // received, by one thread at a time. Must return soon.
  std::function<void(const JobProgress&)> progress;

  // Called about ten times a second, by one thread at a time; true ends the call with CANCELLED.
  std::function<bool()> cancelled;

  Access access;  // of calls that take a server's address

  CallTiming timing;
};

}  // namespace hilbert_ring::client
