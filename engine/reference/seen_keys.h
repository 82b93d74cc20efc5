// The keys that one token's query attends to: the definition's segments, dilations and offsets.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

class Permutation;

std::vector<int64_t> BranchesOf(const JobSpec& spec, int64_t head);

class SeenKeys {
 public:
  // Both outlive it. token: of the query.
  SeenKeys(const JobSpec& spec, const Permutation& order, int64_t token);

  // The query's position, as a key's token: it may be before the sequence's first or after its
  // last.
  int64_t position() const { return position_; }

  // Calls `key` with each token that the head sees in the branch. Returns the number of zero keys.
  int64_t Visit(int64_t branch, int64_t head, const std::function<void(int64_t)>& key) const;

 private:
  const JobSpec& spec_;
  const Permutation& order_;
  int64_t position_ = 0;
  int64_t slot_ = 0;
  Sequence sequence_;  // of keys
};

}  // namespace hilbert_ring
