// Scans a catalog at intervals, because folders come, go and change.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/models/model_catalog.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

// Thread-safe.
class ModelScan {
 public:
  // Waits for the first scan, which reads weights, `patience` at most. interval: between scans. The
  // catalog must outlive it.
  ModelScan(ModelCatalog& catalog, std::chrono::milliseconds interval,
            std::chrono::milliseconds patience = std::chrono::seconds(5));

  ~ModelScan();  // stops the catalog

  void AddTo(v1::Heartbeat& heartbeat) const;  // the last usable models

 private:
  void Look();

  ModelCatalog& catalog_;
  std::atomic<bool> stopping_ = false;
  mutable Mutex mutex_;
  ConditionVariable looked_once_;
  bool has_looked_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::ModelVersion> versions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> logged_;      // lines of the last scan; the thread's
  std::optional<IntervalThread> watch_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
