// The order of a job's tokens: slot s holds token TokenOf(s), token t is held by slot SlotOf(t).
//
//   auto order = Permutation::Make(spec, coords);
//   order->Tokens(first_slot, tokens);              // tokens of a range of slots
//   order->Slots(first_token, slots);               // slots of a range of tokens
//
// Slots and tokens are numbered over the job, or from the begin of a run (a sequence or a window).
// The identity takes no memory. Squares, windows and grids are stored once for each length, while
// lengths sum to at most `max_stored_tokens`; further ones are evaluated by descent. Orders by
// coordinates are stored; sorting takes another 32 bytes for each token of the longest sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Immutable; thread-safe.
class Permutation {
 public:
  // 128 MiB of stored orders at 8 bytes a token.
  static constexpr int64_t kDefaultMaxStoredTokens = int64_t{1} << 24;

  // coords: [tokens, axes] row-major, or empty. The spec is valid. Errors: INVALID_ARGUMENT (length
  // of coords), OUT_OF_RANGE (a coordinate below 0 or not below 2^32 in 2-D, 2^21 in 3-D).
  static absl::StatusOr<std::shared_ptr<const Permutation>> Make(
      const JobSpec& spec, std::span<const int64_t> coords,
      int64_t max_stored_tokens = kDefaultMaxStoredTokens);

  virtual ~Permutation() = default;

  virtual int64_t resident_bytes() const = 0;

  // tokens[i] = token in slot first_slot + i.
  virtual void Tokens(int64_t first_slot, std::span<int64_t> tokens) const = 0;

  // slots[i] = slot of token first_token + i.
  virtual void Slots(int64_t first_token, std::span<int64_t> slots) const = 0;
};

}  // namespace hilbert_ring
