// The order of a run: tokens that are ordered together (a sequence, a window of one, or all
// sequences of a job). Slots and tokens are numbered from the run's begin.
#pragma once

#include <cstdint>
#include <span>

namespace hilbert_ring {

// Immutable, so any number of threads may read one.
class RunOrder {
 public:
  virtual ~RunOrder() = default;

  virtual int64_t resident_bytes() const = 0;

  // tokens[i] = token in slot first_slot + i. The range lies within the run.
  virtual void Tokens(int64_t first_slot, std::span<int64_t> tokens) const = 0;

  // slots[i] = slot of token first_token + i. The range lies within the run.
  virtual void Slots(int64_t first_token, std::span<int64_t> slots) const = 0;
};

}  // namespace hilbert_ring
