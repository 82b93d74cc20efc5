// Sends a job's input, chunk after chunk, on the stream of its call, and rows of it again when the
// service asks for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/cpp/input_chunks.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/resend_queue.h"
#include "engine/base/mutex.h"
#include "wire/raw_stream.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::client {

struct SendSettings {
  int64_t max_payload_bytes = 0;
  bool can_resend = false;  // else the client's side is closed with the last chunk
};

// Used by one thread, beside its own.
class InputSender {
 public:
  // The references must outlive the object.
  InputSender(const JobTensors& tensors, const SendSettings& settings, wire::RawStream& stream,
              ProgressTeller& progress);

  // OUT_OF_RANGE: a row that is longer than a payload may be; nothing may be sent then.
  absl::Status Check() const { return chunks_.Check(); }

  // Sends all, in the calling thread or in one of the sender's own. Either once. Ends early when
  // the stream has ended: its Finish says why.
  void Send();
  void StartThread();

  // The service asks for rows again. They go before those that were never sent, in a thread of the
  // sender's own.
  void Resend(const v1::Resend& resend);

  // The report has come: nothing is sent any more, and the client's side is closed if it is not.
  void Close();

  // After the stream has ended: returns when the sender's thread is done.
  void Join();

 private:
  void Run();
  bool SendWaiting();
  bool SendNext(const grpc::WriteOptions& options);

  const JobTensors& tensors_;
  const SendSettings settings_;
  wire::RawStream& stream_;  // written to by one thread: the sender's own, once it runs
  ProgressTeller& progress_;
  InputChunks chunks_;
  wire::SlicePool buffers_;
  v1::Chunk chunk_;  // that is sent, like its payload
  std::string_view payload_;
  std::atomic<int64_t> bytes_left_;  // of those never sent

  enum class State { kOpen, kReported, kEnded };

  Mutex mutex_;
  ConditionVariable changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kOpen;
  ResendQueue again_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all above
};

}  // namespace hilbert_ring::client
