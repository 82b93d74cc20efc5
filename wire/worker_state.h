// Names of a worker's state in tables and metrics.
#pragma once

#include <string_view>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::wire {

inline std::string_view NameOf(v1::ClusterWorker::State state) {
  switch (state) {
    case v1::ClusterWorker::STATE_UP:
      return "up";
    case v1::ClusterWorker::STATE_DRAINING:
      return "draining";
    case v1::ClusterWorker::STATE_QUARANTINED:
      return "quarantined";
    case v1::ClusterWorker::STATE_JOINING:
      return "joining";
    case v1::ClusterWorker::STATE_BACKING_OFF:
      return "backing_off";
    default:
      return "unknown";  // from a newer service
  }
}

}  // namespace hilbert_ring::wire
