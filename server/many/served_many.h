// The story of one call of many small jobs at the coordinator.
//
//   ServedMany(services, memory, stream, caller, traceparent).Run()
//
//   messages are read -> the jobs of each are packed (packed_jobs.h) -> each pack is a job
//   (served_job.h), on a thread of its message -> results leave, in whatever order they come
//
// As many messages are computed at once as a worker has jobs, so that the call keeps the workers
// busy and no more memory than was reserved; others are not read, which their transport notices.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/many.pb.h"
#include "server/access/caller.h"
#include "server/job/client_stream.h"
#include "server/job/job_services.h"
#include "server/job/stream_memory.h"
#include "server/many/packed_jobs.h"

namespace hilbert_ring::server {

class ServedMany {
 public:
  // memory: of all streams and calls of many jobs. All must outlive it.
  ServedMany(const JobServices& services, StreamMemory& memory, ClientStream& client, Caller caller,
             std::string traceparent);

  // The whole call. OK where every job has ended and every result was taken. All that it held is
  // free when this returns.
  absl::Status Run();

  int64_t held_bytes() const;

 private:
  struct Message;

  absl::Status ReadAll();
  absl::Status AwaitJob();
  absl::Status ReserveMemory();
  absl::Status Begin(std::unique_ptr<Message> message);
  void Serve(const Message& message);
  void ServePack(const PackedJobs& jobs, const Caller& caller);
  absl::StatusOr<v1::Report> RunPack(const PackedJobs& jobs, const Caller& caller,
                                     v1::AttendManyResponse& response);
  absl::Status CheckOutputs(const PackedJobs& jobs) const;
  bool ManyFailed() const;
  void Send(const v1::AttendManyResponse& response, int64_t failed);
  void Await(int running);
  void NoteEnd(const absl::Status& status) const;

  const JobServices services_;
  StreamMemory& memory_;
  ClientStream& client_;
  const Caller caller_;  // as it was when the call began
  const std::string traceparent_;
  std::optional<StreamMemory::Share> held_;  // from the first job on
  int64_t jobs_ = 0;                         // that have come; the reader's
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;  // messages
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t packs_ ABSL_GUARDED_BY(mutex_) = 0;
  const Clock::time_point opened_;
};

}  // namespace hilbert_ring::server
