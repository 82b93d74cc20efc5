// The models that a worker has, from its heartbeats.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/worker.pb.h"

namespace hilbert_ring::server {

// Thread-safe.
class ModelVersions {
 public:
  void Set(const google::protobuf::RepeatedPtrField<v1::ModelVersion>& models) {
    constexpr int kMost = 256;
    const int count = std::min(models.size(), kMost);
    std::vector<v1::ModelVersion> versions(models.begin(), models.begin() + count);
    const MutexLock lock(mutex_);
    versions_ = std::move(versions);
  }

  bool Has(std::string_view name, std::string_view digest) const {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(versions_, [&](const v1::ModelVersion& version) {
      return version.name() == name && version.digest() == digest;
    });
  }

 private:
  mutable Mutex mutex_;
  std::vector<v1::ModelVersion> versions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
