// A service's request for lost rows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;  // first row, rows

inline v1::Resend Request(v1::Tensor tensor, const Ranges& ranges, int attempt = 0) {
  v1::Resend resend;
  resend.set_attempt(attempt);
  resend.set_tensor(tensor);
  for (const auto& [first, rows] : ranges) {
    v1::Resend::Range& range = *resend.add_ranges();
    range.set_first_row(first);
    range.set_rows(rows);
  }
  return resend;
}

}  // namespace hilbert_ring::client
