// The cut of a stream into epochs, each of which is a job. An epoch is a common multiple of all
// segments and the ordering's window, or of the sum of packed sequences, so that no segment crosses
// its end. The last epoch has the rest. If zero keys fill short segments, no epoch may be shorter
// than the longest segment: an epoch is due when as many rows have come behind it, and the last
// epoch takes these too.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/saturating.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::server {

inline constexpr int64_t kStreamChunkBytes = 1 << 20;  // the size of a message of rows or outputs

struct EpochLimits {
  int64_t asked = 0;       // tokens; 0: as many as fit
  int64_t most_bytes = 0;  // of an epoch's rows and outputs
  bool want_lse = false;
  SpecLimits spec;
};

class Epochs {
 public:
  // spec: of the stream, without tokens. INVALID_ARGUMENT, OUT_OF_RANGE (INVALID_SPEC) for a wrong
  // spec or ordering; INVALID_ARGUMENT (INVALID_OPEN) if `asked` is not a multiple;
  // FAILED_PRECONDITION (DOES_NOT_FIT) if the smallest epoch exceeds most_bytes.
  static absl::StatusOr<Epochs> Make(const JobSpec& spec, const EpochLimits& limits);

  int64_t tokens() const { return tokens_; }                 // of all but the last
  int64_t multiple() const { return multiple_; }             // divides tokens()
  int64_t behind() const { return behind_; }                 // rows that follow before one is due
  int64_t most_tokens() const { return tokens_ + behind_; }  // of the last

  int64_t input_row_bytes() const { return input_row_bytes_; }    // of Q, K and V
  int64_t output_row_bytes() const { return output_row_bytes_; }  // of OUT, and LSE if wanted

  // Rows in memory: of the epoch that is computed, and of the next.
  int64_t held_rows() const { return 2 * tokens_ + behind_; }

  // Memory of a stream: these rows, and outputs of two epochs.
  int64_t held_bytes() const {
    return held_rows() * input_row_bytes_ + 2 * most_tokens() * output_row_bytes_;
  }

  bool Halve();  // makes epochs half as long or shorter; false at the smallest

  // Tokens of the epoch from `begin` on. come: rows of all tensors.
  int64_t DueAt(int64_t begin, int64_t come, bool ended) const;

  JobSpec SpecOf(int64_t tokens) const;

 private:
  Epochs(const JobSpec& spec, const EpochLimits& limits);
  int64_t BytesOf(int64_t tokens) const {
    return SaturatingMultiply(SaturatingAdd(tokens, behind_), input_row_bytes_ + output_row_bytes_);
  }

  JobSpec spec_;
  int64_t multiple_ = 0, tokens_ = 0, behind_ = 0;
  int64_t input_row_bytes_ = 0, output_row_bytes_ = 0;
};

}  // namespace hilbert_ring::server
