#include "server/worker/model_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kPoll{10};  // between two looks at cancellation
constexpr size_t kLoadsAtOnce = 4;              // each takes extra memory for a while

}  // namespace

ModelStore::ModelStore(std::string folder, int64_t limit_bytes, std::string share_folder,
                       Device* gpu)
    : catalog_(std::move(folder)),
      limit_(limit_bytes),
      share_folder_(std::move(share_folder)),
      gpu_(gpu) {
  if (!share_folder_.empty()) WeightMemory::RemoveUnused(share_folder_);
}

int64_t ModelStore::bytes() const {
  const MutexLock lock(mutex_);
  int64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.model != nullptr ? entry.bytes : 0;
  return bytes;
}

int ModelStore::count() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return entry.model != nullptr; }));
}

// Models in use stay: erasing them would not free their memory.
absl::StatusOr<bool> ModelStore::MakeRoom(int64_t bytes) {
  size_t loads = 0;
  int64_t coming = 0, used = 0, unused = 0;
  for (const Entry& entry : entries_) {
    if (entry.model == nullptr) ++loads;
    (entry.model == nullptr ? coming : entry.model.use_count() > 1 ? used : unused) += entry.bytes;
  }
  if (loads >= (gpu_ != nullptr ? 1 : kLoadsAtOnce)) return false;
  if (used + bytes > limit_) {
    return wire::ErrorOf(wire::reason::kWorkerMemory,
                         absl::StrCat("the weights take ", bytes, " bytes, ", limit_ - used, " of ",
                                      limit_, " are free (--model-memory)"));
  }
  const int64_t most_unused = limit_ - used - coming - bytes;
  if (most_unused < 0) return false;
  for (auto entry = entries_.end(); unused > most_unused;) {
    --entry;
    if (entry->model.use_count() != 1) continue;
    unused -= entry->bytes;
    entry = entries_.erase(entry);
  }
  return true;
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> ModelStore::Load(
    const EncoderFolder& folder, DataType compute, const std::function<bool()>& cancelled) {
  const auto bytes = PackedBytes(folder.config(), {.compute = compute, .device = gpu_});
  if (!bytes.ok()) return wire::WithReason(bytes.status(), wire::reason::kModelUnusable);
  std::list<Entry>::iterator ours;
  for (bool begun = false; !begun;) {
    if (cancelled && cancelled()) return absl::CancelledError("the job was cancelled");
    MutexLock lock(mutex_);
    const auto known = std::ranges::find_if(entries_, [&](const Entry& entry) {
      return entry.digest == folder.digest() && entry.compute == compute;
    });
    if (known == entries_.end()) {
      ASSIGN_OR_RETURN(begun, MakeRoom(*bytes));
    } else if (known->model != nullptr) {
      entries_.splice(entries_.begin(), entries_, known);
      return known->model;
    }
    if (begun) {
      ours = entries_.insert(entries_.begin(), {folder.digest(), compute, *bytes});
    } else {
      ended_.wait_for(lock, kPoll);
    }
  }
  auto model = Read(folder, compute);
  {
    const MutexLock lock(mutex_);
    if (model.ok()) {
      ours->model = *model;
      ours->bytes = (*model)->bytes();
    } else {
      entries_.erase(ours);
    }
  }
  ended_.notify_all();
  return model;
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> ModelStore::Read(const EncoderFolder& folder,
                                                                     DataType compute) {
  const auto memory = [&](const std::string& key,
                          int64_t bytes) -> absl::StatusOr<std::unique_ptr<WeightMemory>> {
    if (share_folder_.empty()) return WeightMemory::Private(bytes);
    auto shared = WeightMemory::Shared(share_folder_, key, bytes,
                                       absl::FromChrono(LoadTimeout(folder.config())));
    if (shared.ok()) return shared;
    spdlog::info("weights are not shared with other workers: {}",
                 std::string(shared.status().message()));
    return WeightMemory::Private(bytes);
  };
  auto model = EncoderModel::Load(folder, {.compute = compute, .device = gpu_, .memory = memory});
  if (!model.ok()) {
    return wire::WithReason(model.status(), absl::IsResourceExhausted(model.status())
                                                ? wire::reason::kWorkerMemory
                                                : wire::reason::kModelUnusable);
  }
  std::string where;
  if (gpu_ != nullptr) where = absl::StrCat(" of ", gpu_->info().name);
  if ((*model)->shared()) where = ", shared by the workers of this host";
  spdlog::info("loaded {}: {} MiB{}", folder.path(), (*model)->bytes() >> 20, where);
  return model;
}

}  // namespace hilbert_ring::server
