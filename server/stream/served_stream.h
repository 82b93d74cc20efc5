// A stream at the coordinator, from Open to its report.
//
//   Open -> epochs, the first one tried out -> memory -> Admitted -> a thread receives rows, one
//   computes epochs as jobs (served_job.h), one sends outputs of finished epochs -> Report
//
// An epoch's job begins when its rows are there, so that a slow client keeps no worker. Rows stay
// until it is done, so that workers may be lost; outputs leave when it is done, so that they leave
// once. Memory holds rows and outputs of two epochs: a client that does not read stops the sender,
// then the epochs, then the receiver, which its transport notices. A stream returns its memory
// while its first rows do not come.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/caller.h"
#include "server/access/quotas.h"
#include "server/job/client_stream.h"
#include "server/job/job_course.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/stream/epoch_outputs.h"
#include "server/stream/epochs.h"
#include "server/stream/stream_memory.h"
#include "server/stream/stream_rows.h"

namespace hilbert_ring::server {

class ServedStream {
 public:
  // memory: of all streams. References outlive it.
  ServedStream(const JobServices& services, StreamMemory& memory, ClientStream& client,
               Caller caller, std::string traceparent);

  absl::StatusOr<v1::Report> Run();

  int64_t held_bytes() const { return epochs_ ? epochs_->held_bytes() : 0; }

 private:
  absl::Status Open();
  absl::Status CheckOpen() const;
  absl::Status RunStream();
  absl::Status FitEpoch();
  absl::Status ReserveQuota();
  absl::Status ReserveMemory();
  absl::Status Admit();
  absl::Status Receive();
  absl::Status Compute();
  absl::StatusOr<v1::Report> RunEpoch(const RowSpan& span, EpochBuffer& buffer);
  absl::StatusOr<v1::Report> RunJob(const RowSpan& span, EpochBuffer& buffer);
  void Add(const v1::Report& epoch);
  void NoteEnd(const absl::Status& status);
  v1::Open OpenOf(int64_t tokens) const;

  const JobServices services_;
  StreamMemory& memory_;
  ClientStream& client_;
  const Caller caller_;
  const std::string traceparent_;

  JobTable epoch_table_;  // the epochs' jobs are not the caller's
  Quotas epoch_quotas_;
  const JobServices epoch_services_;

  v1::Open open_;
  std::optional<Epochs> epochs_;
  JobCourse course_;
  std::optional<Quotas::Share> quota_;
  StreamMemory::Share held_;  // null: returned
  std::optional<StreamRows> rows_;
  std::optional<EpochOutputs> outputs_;
  bool epoch_failed_ = false;
  int64_t bytes_received_ = 0;  // the receiver's until it ends
  v1::Report report_;
  const Clock::time_point opened_;
};

}  // namespace hilbert_ring::server
