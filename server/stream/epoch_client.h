// The client of an epoch's job: rows come from the stream's memory, also again after a loss of
// workers; outputs go to the epoch's buffer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_client.h"
#include "server/process/job_stop.h"
#include "server/stream/epoch_outputs.h"
#include "server/stream/stream_rows.h"

namespace hilbert_ring::server {

class EpochClient : public JobClient {
 public:
  struct Parts {
    JobStop* stop = nullptr;           // the stream's
    const StreamRows* rows = nullptr;  // null: only Open is read
    RowSpan span;                      // of the stream
    EpochBuffer* outputs = nullptr;
  };

  // open: of the epoch's job. The parts outlive it.
  EpochClient(const v1::Open& open, const Parts& parts) : open_(open), parts_(parts) {}

  JobStop& stop() override { return *parts_.stop; }
  void ReadAhead() override {}
  bool AwaitArrived(int64_t /*bytes*/, Input /*input*/) override { return true; }

  // Open, then rows of Q, K and V in bands, then rows that were lost.
  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) override;

  absl::Status Write(const v1::AttendResponse& response, const JobStop& stop) override;
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void> owner, Clock::duration patience,
                             const JobStop& stop, SendMode mode) override;
  absl::Status AwaitTaken(const JobStop& stop) override { return stop.why(); }
  void Offer(const v1::AttendResponse& response) override {}

 private:
  struct Piece {
    TensorKind tensor;
    int64_t first_row, rows;  // of the epoch
  };
  int64_t RowsOfChunk() const;

  const v1::Open open_;
  const Parts parts_;
  bool opened_ = false;
  // The reading thread's, which also requests lost rows:
  int64_t band_ = 0;          // rows of each tensor, read or in pieces_
  std::deque<Piece> pieces_;  // to be read
};

}  // namespace hilbert_ring::server
