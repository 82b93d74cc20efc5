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

absl::StatusOr<std::unique_ptr<WeightMemory>> ModelStore::MemoryFor(
    const std::string& key, int64_t bytes, std::chrono::seconds wait) const {
  if (share_folder_.empty()) return WeightMemory::Private(bytes);
  auto shared = WeightMemory::Shared(share_folder_, key, bytes, absl::FromChrono(wait));
  if (shared.ok()) return shared;
  spdlog::info("weights are not shared with other workers: {}",
               std::string(shared.status().message()));
  return WeightMemory::Private(bytes);
}

int64_t ModelStore::Bytes() const {
  int64_t bytes = 0;
  for (const auto& model : loaded_) bytes += model->bytes();
  return bytes;
}

int64_t ModelStore::bytes() const {
  const MutexLock lock(mutex_);
  return Bytes();
}

int ModelStore::count() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(loaded_.size());
}

std::shared_ptr<const EncoderModel> ModelStore::Find(const EncoderFolder& folder,
                                                     DataType compute) {
  const auto found = std::ranges::find_if(loaded_, [&](const auto& model) {
    return model->digest() == folder.digest() && model->compute() == compute;
  });
  if (found == loaded_.end()) return nullptr;
  loaded_.splice(loaded_.begin(), loaded_, found);
  return loaded_.front();
}

// Models in use stay: erasing them would not free their memory.
absl::StatusOr<bool> ModelStore::Begin(const Loading& wanted) {
  const size_t at_once = gpu_ != nullptr ? 1 : kLoadsAtOnce;
  const bool is_loading = std::ranges::any_of(loading_, [&](const Loading& loading) {
    return loading.digest == wanted.digest && loading.compute == wanted.compute;
  });
  if (is_loading || loading_.size() >= at_once) return false;
  int64_t coming = 0, kept = 0;
  for (const Loading& loading : loading_) coming += loading.bytes;
  for (const auto& model : loaded_) kept += model.use_count() > 1 ? model->bytes() : 0;
  if (kept + wanted.bytes > limit_) {
    return wire::ErrorOf(wire::reason::kWorkerMemory,
                         absl::StrCat("the weights take ", wanted.bytes, " bytes, ", limit_ - kept,
                                      " of ", limit_, " are free (--model-memory)"));
  }
  const int64_t most = limit_ - coming - wanted.bytes;
  if (kept > most) return false;
  for (auto model = loaded_.end(); Bytes() > most && model != loaded_.begin();) {
    --model;
    if (model->use_count() == 1) model = loaded_.erase(model);
  }
  loading_.push_front(wanted);
  return true;
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> ModelStore::Load(
    const EncoderFolder& folder, DataType compute, const std::function<bool()>& cancelled) {
  {
    const MutexLock lock(mutex_);
    if (auto loaded = Find(folder, compute)) return loaded;
  }
  const auto bytes = PackedBytes(folder.config(), {.compute = compute, .device = gpu_});
  if (!bytes.ok()) return wire::WithReason(bytes.status(), wire::reason::kModelUnusable);
  std::list<Loading>::iterator ours;
  for (bool begun = false; !begun;) {
    if (cancelled && cancelled()) return absl::CancelledError("the job was cancelled");
    MutexLock lock(mutex_);
    if (auto loaded = Find(folder, compute)) return loaded;  // by another job
    ASSIGN_OR_RETURN(begun, Begin({folder.digest(), compute, *bytes}));
    ours = loading_.begin();
    if (!begun) ended_.wait_for(lock, kPoll);
  }
  auto model = Read(folder, compute);
  {
    const MutexLock lock(mutex_);
    loading_.erase(ours);
    if (model.ok()) loaded_.push_front(*model);
  }
  ended_.notify_all();
  return model;
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> ModelStore::Read(const EncoderFolder& folder,
                                                                     DataType compute) {
  auto model = EncoderModel::Load(
      folder,
      {.compute = compute, .device = gpu_, .memory = [&](const std::string& key, int64_t of_key) {
         return MemoryFor(key, of_key, LoadTimeout(folder.config()));
       }});
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
