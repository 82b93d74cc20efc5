#include "server/stream/stream_memory.h"

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::StatusOr<StreamMemory::Share> StreamMemory::Reserve(const Caller& caller, int64_t bytes,
                                                          absl::string_view what) {
  const MutexLock lock(mutex_);
  const auto found = used_by_.find(caller.turns);
  const int64_t own = found == used_by_.end() ? 0 : found->second;
  if (bytes > limit_ / 2 - own) {
    return wire::ErrorOf(
        wire::reason::kWaitingMemory,
        absl::StrCat(what, " takes ", bytes, " bytes, other streams of ", caller.turns, " have ",
                     own, " of ", limit_ / 2, ", the limit of a caller (half of --stream-memory)"));
  }
  if (bytes > limit_ - used_) {
    return wire::ErrorOf(wire::reason::kWaitingMemory,
                         absl::StrCat(what, " takes ", bytes, " bytes, other streams have ", used_,
                                      " of ", limit_, " (--stream-memory)"));
  }
  used_ += bytes;
  used_by_[caller.turns] += bytes;
  return Share(this, [this, caller = caller.turns, bytes](const void*) { Return(caller, bytes); });
}

void StreamMemory::Return(const std::string& caller, int64_t bytes) {
  const MutexLock lock(mutex_);
  used_ -= bytes;
  const auto own = used_by_.find(caller);
  own->second -= bytes;
  if (own->second == 0) used_by_.erase(own);
}

int64_t StreamMemory::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

}  // namespace hilbert_ring::server
