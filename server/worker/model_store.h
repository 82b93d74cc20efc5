// Models that this worker has loaded, kept for later jobs.
#pragma once

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

class ModelStore {  // thread-safe
 public:
  // folder: of models, or empty. limit_bytes: of all weights, shared ones included. share_folder:
  // on a file system in memory, where processes of this host share weights (weight_memory.h), or
  // empty; unused files there are removed. gpu: holds the weights, which are then not shared, and
  // outlives the store and its models; null: the host's memory does.
  ModelStore(std::string folder, int64_t limit_bytes, std::string share_folder = "",
             Device* gpu = nullptr);

  ModelCatalog& catalog() { return catalog_; }
  DataType ProductsOf(DataType compute) const { return ProductsOn(gpu_, compute); }
  int64_t limit() const { return limit_; }

  // Returns the folder's version, loading it if necessary: a few at once, because a file system may
  // hang; on a GPU one. Models that no job uses make room, the least recently used first; loads
  // wait for each other's room, and ask `cancelled` until then: CANCELLED. RESOURCE_EXHAUSTED
  // (WORKER_MEMORY), FAILED_PRECONDITION or, if files change, UNAVAILABLE (MODEL_UNUSABLE).
  absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(
      const EncoderFolder& folder, DataType compute,
      const std::function<bool()>& cancelled = nullptr);

  int64_t bytes() const;  // of loaded models
  int count() const;

 private:
  struct Entry {
    std::string digest;
    DataType compute;
    int64_t bytes;
    std::shared_ptr<const EncoderModel> model = nullptr;  // null while it is loaded
  };

  // Makes room for a load; false: not yet.
  absl::StatusOr<bool> MakeRoom(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<const EncoderModel>> Read(const EncoderFolder& folder,
                                                           DataType compute);

  ModelCatalog catalog_;
  const int64_t limit_;
  const std::string share_folder_;
  Device* const gpu_;
  mutable Mutex mutex_;
  ConditionVariable ended_;                           // a load
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace hilbert_ring::server
