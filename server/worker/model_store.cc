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

constexpr std::chrono::milliseconds kPoll{10};  // until a cancellation is seen

}  // namespace

ModelStore::ModelStore(std::string folder, int64_t limit_bytes, std::string share_folder,
                       Device* gpu)
    : catalog_(std::move(folder)),
      limit_(limit_bytes),
      share_folder_(std::move(share_folder)),
      gpu_(gpu) {
  if (!share_folder_.empty()) WeightMemory::RemoveUnused(share_folder_);
}

// Weights that cannot be shared are this process's own.
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

// Models that jobs have stay: their memory would not be free.
void ModelStore::MakeRoom(int64_t bytes) {
  for (auto model = loaded_.end(); Bytes() + bytes > limit_ && model != loaded_.begin();) {
    --model;
    if (model->use_count() > 1) continue;
    model = loaded_.erase(model);
  }
}

// Null where it is not loaded.
std::shared_ptr<const EncoderModel> ModelStore::Find(const EncoderFolder& folder,
                                                     DataType compute) {
  const auto found = std::ranges::find_if(loaded_, [&](const auto& model) {
    return model->digest() == folder.digest() && model->compute() == compute;
  });
  if (found == loaded_.end()) return nullptr;
  loaded_.splice(loaded_.begin(), loaded_, found);
  return loaded_.front();
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> ModelStore::Load(
    const EncoderFolder& folder, DataType compute, const std::function<bool()>& cancelled) {
  for (bool our_turn = false; !our_turn;) {
    if (cancelled && cancelled()) return absl::CancelledError("the job was cancelled");
    MutexLock lock(mutex_);
    // One that is there waits for no other's load.
    if (auto loaded = Find(folder, compute)) return loaded;
    our_turn = ended_.wait_for(
        lock, kPoll, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !loading_; });
    if (!our_turn) continue;
    if (auto loaded = Find(folder, compute)) return loaded;  // by the one before
    loading_ = true;
  }
  auto model = LoadInTurn(folder, compute);
  {
    const MutexLock lock(mutex_);
    loading_ = false;
  }
  ended_.notify_all();
  return model;
}

absl::StatusOr<std::shared_ptr<const EncoderModel>> ModelStore::LoadInTurn(
    const EncoderFolder& folder, DataType compute) {
  const EncoderModelOptions wanted{.compute = compute, .device = gpu_};
  auto bytes = PackedBytes(folder.config(), wanted);
  if (!bytes.ok()) return wire::WithReason(bytes.status(), wire::reason::kModelUnusable);
  int64_t room = 0;
  {
    const MutexLock lock(mutex_);
    MakeRoom(*bytes);
    room = limit_ - Bytes();
  }
  if (*bytes > room) {
    return wire::ErrorOf(wire::reason::kModelMemory,
                         absl::StrCat("the weights take ", *bytes, " bytes, ", room, " of ", limit_,
                                      " are free (--model-memory)"));
  }
  auto model =
      EncoderModel::Load(folder, {.compute = compute,
                                  .max_bytes = room,
                                  .device = gpu_,
                                  .memory = [&](const std::string& key, int64_t of_key) {
                                    return MemoryFor(key, of_key, LoadTimeout(folder.config()));
                                  }});
  if (!model.ok()) {
    return wire::WithReason(model.status(), absl::IsResourceExhausted(model.status())
                                                ? wire::reason::kModelMemory
                                                : wire::reason::kModelUnusable);
  }
  std::string where;
  if (gpu_ != nullptr) where = absl::StrCat(" of ", gpu_->info().name);
  if ((*model)->shared()) where = ", shared by the workers of this host";
  spdlog::info("loaded {}: {} MiB{}", folder.path(), (*model)->bytes() >> 20, where);
  const MutexLock lock(mutex_);
  loaded_.push_front(*model);
  return model;
}

}  // namespace hilbert_ring::server
