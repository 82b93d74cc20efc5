// A step of an exchange: both ends of a transfer must agree on it.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring {

// A send and a receive between two ranks are one transfer when their keys are equal.
struct TransferKey {
  int64_t step = 0;
  int64_t place = 0;  // among the step's transfers between this pair of ranks
  int64_t bytes = 0;

  bool operator==(const TransferKey&) const = default;
};

// Keys of a step's sends, or of its receives, in list order.
class TransferKeys {
 public:
  TransferKeys(int64_t step, int size) : step_(step), places_(size) {}

  TransferKey Next(int peer, int64_t bytes) {
    return {.step = step_, .place = places_[peer]++, .bytes = bytes};
  }

 private:
  const int64_t step_;
  std::vector<int64_t> places_;  // [ranks]
};

}  // namespace hilbert_ring
