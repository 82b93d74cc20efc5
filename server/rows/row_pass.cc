#include "server/rows/row_pass.h"

#include <algorithm>

#include "engine/base/return_if_error.h"

namespace hilbert_ring::server {

absl::Status VisitPlaces(const RowRouter& router, v1::Tensor tensor, const RowSet& rows,
                         int64_t piece,
                         const std::function<absl::Status(const std::vector<RowRun>&)>& visit) {
  for (const auto& [begin, end] : rows.ranges()) {
    for (int64_t row = begin; row < end; row += piece) {
      RETURN_IF_ERROR(visit(router.Runs(tensor, row, std::min(piece, end - row))));
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
