// Returns the value or throws: a failure ends a measurement, and main reports it.
#pragma once

#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::bench {

inline void OrFail(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <typename T>
T OrFail(absl::StatusOr<T> result) {
  OrFail(result.status());
  return *std::move(result);
}

}  // namespace hilbert_ring::bench
