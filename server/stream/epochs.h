// How a stream without end is cut into epochs, each of which is a job. Pure.
//
//   ASSIGN_OR_RETURN(const Epochs epochs, Epochs::Make(spec, {.most_bytes = settings...}));
//   epochs.tokens();                 // of every epoch but the last
//   epochs.DueAt(0, rows, false);    // rows of the epoch that begins at row 0; 0: more must come
//   epochs.SpecOf(tokens);           // the job of an epoch of so many
//
// An epoch is a common multiple of all segments, and of the ordering's window, so that no segment
// lies over two of them; of packed sequences, whose lengths repeat, it is a multiple of their sum.
// The last epoch has what is left. Where zero keys fill a segment that runs short up to the length
// of a segment or of the sequence, whichever is less, no epoch may be shorter than the longest
// segment: one is due when as many rows have come behind it, and the last one takes those too.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/saturating.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::server {

// Of rows in a message, to an epoch's job and of its outputs.
inline constexpr int64_t kStreamChunkBytes = 1 << 20;

struct EpochLimits {
  int64_t asked = 0;       // tokens, by the client; 0: as many as fit
  int64_t most_bytes = 0;  // of an epoch's rows and outputs
  bool want_lse = false;
  SpecLimits spec;
};

class Epochs {
 public:
  // spec: of the stream, without tokens. INVALID_ARGUMENT, OUT_OF_RANGE (INVALID_SPEC): it is
  // wrong, or has an order that a stream has not; INVALID_ARGUMENT (INVALID_OPEN): what was asked
  // is no multiple of what it must be; FAILED_PRECONDITION (DOES_NOT_FIT): the smallest epoch takes
  // more than most_bytes, naming what it takes.
  static absl::StatusOr<Epochs> Make(const JobSpec& spec, const EpochLimits& limits);

  int64_t tokens() const { return tokens_; }      // of each but the last
  int64_t multiple() const { return multiple_; }  // that tokens() is a multiple of
  int64_t behind() const { return behind_; }      // rows that must follow before one is due
  int64_t most_tokens() const { return tokens_ + behind_; }  // of the last one

  int64_t input_row_bytes() const { return input_row_bytes_; }    // of Q, K and V
  int64_t output_row_bytes() const { return output_row_bytes_; }  // of OUT, and LSE where wanted

  // Rows that are held at once: of an epoch that is computed, and of the one that comes.
  int64_t held_rows() const { return 2 * tokens_ + behind_; }

  // All that a stream holds: those, and outputs of an epoch that is computed and of one that
  // leaves.
  int64_t held_bytes() const {
    return held_rows() * input_row_bytes_ + 2 * most_tokens() * output_row_bytes_;
  }

  // Half of it, or less: a multiple still. False where that is the smallest already.
  bool Halve();

  // Of rows up to `come` of all tensors, ended or not: those of the epoch that begins at `begin`.
  int64_t DueAt(int64_t begin, int64_t come, bool ended) const;

  // tokens: 1 to most_tokens().
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
