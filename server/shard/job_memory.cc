#include "server/shard/job_memory.h"

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::StatusOr<JobMemory::Reservation> JobMemory::Reserve(int64_t bytes) {
  int64_t used = used_;
  do {
    if (bytes > limit_ - used) {
      return wire::ErrorOf(wire::reason::kWorkerMemory,
                           absl::StrCat("the job needs ", bytes, " bytes, ", used,
                                        " of the limit of ", limit_, " are in use"));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return Reservation(this, bytes);
}

}  // namespace hilbert_ring::server
