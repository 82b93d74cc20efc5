// Models that this worker has loaded, for the jobs that want them next.
//
//   ModelStore store("/srv/models", bytes);
//   ASSIGN_OR_RETURN(const EncoderFolder folder, store.catalog().Open(name, digest));
//   ASSIGN_OR_RETURN(const auto model, store.Load(folder, DataType::kBFloat16));
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/model/encoder_model.h"
#include "server/models/model_catalog.h"

namespace hilbert_ring::server {

// Thread-safe.
class ModelStore {
 public:
  // folder: empty where there are none. limit_bytes: of the weights of all models together, those
  // included that other processes have too. share_folder: of a file system in memory, where
  // processes of this host share them (weight_memory.h); empty: they do not. Files there that
  // nobody has are removed. gpu: whose memory weights lie in, and which outlives the store and its
  // models; null: the host's. A GPU's are not shared.
  ModelStore(std::string folder, int64_t limit_bytes, std::string share_folder = "",
             Device* gpu = nullptr);

  ModelCatalog& catalog() { return catalog_; }
  DataType ProductsOf(DataType compute) const { return ProductsOn(gpu_, compute); }
  int64_t limit() const { return limit_; }

  // The folder's version, loaded now or before. Versions are loaded beside each other, some at a
  // time, so that one whose files do not answer holds up no other; of one on a GPU, one at a time.
  // Those that were not used for longest, and that no job has, make room; where those that are
  // being loaded have it, it is waited for. `cancelled` is asked until loading begins: CANCELLED.
  // RESOURCE_EXHAUSTED (WORKER_MEMORY), FAILED_PRECONDITION (MODEL_UNUSABLE), UNAVAILABLE
  // (MODEL_UNUSABLE): it changes.
  absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(
      const EncoderFolder& folder, DataType compute,
      const std::function<bool()>& cancelled = nullptr);

  int64_t bytes() const;  // of those that are loaded
  int count() const;

 private:
  // What is being loaded, and the memory that is kept for it.
  struct Loading {
    std::string digest;
    DataType compute;
    int64_t bytes;
  };

  std::shared_ptr<const EncoderModel> Find(const EncoderFolder& folder, DataType compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps memory for a version. False: not yet.
  absl::StatusOr<bool> Begin(const Loading& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<const EncoderModel>> Read(const EncoderFolder& folder,
                                                           DataType compute);
  absl::StatusOr<std::unique_ptr<WeightMemory>> MemoryFor(const std::string& key, int64_t bytes,
                                                          std::chrono::seconds wait) const;
  int64_t Bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ModelCatalog catalog_;
  const int64_t limit_;
  const std::string share_folder_;
  Device* const gpu_;
  mutable Mutex mutex_;
  ConditionVariable ended_;  // a load
  std::list<Loading> loading_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<const EncoderModel>> loaded_
      ABSL_GUARDED_BY(mutex_);  // the last used first
};

}  // namespace hilbert_ring::server
