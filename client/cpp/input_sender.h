// Sends a job's input, chunk after chunk, on the stream of its call.
#pragma once

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "client/cpp/input_chunks.h"
#include "client/cpp/progress_teller.h"
#include "wire/raw_stream.h"

namespace hilbert_ring::client {

class InputSender {
 public:
  // Payloads of at most max_payload_bytes. The references must outlive the object.
  InputSender(const AttendInputs& inputs, int64_t max_payload_bytes, wire::RawStream& stream,
              ProgressTeller& progress);

  // OUT_OF_RANGE: a row that is longer than a payload may be; nothing may be sent then.
  absl::Status Check() const { return chunks_.Check(); }

  // Sends all, in the calling thread or in one of the sender's own. Either once. Ends early when
  // the stream has ended: its Finish says why.
  void Send();
  void StartThread();

  // After the stream has ended: returns when the sender's thread is done.
  void Join();

 private:
  const AttendInputs& inputs_;
  const int64_t longest_payload_;  // bytes
  wire::RawStream& stream_;
  ProgressTeller& progress_;
  InputChunks chunks_;
  std::jthread thread_;
};

}  // namespace hilbert_ring::client
