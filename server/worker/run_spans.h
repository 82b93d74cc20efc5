// Spans of time in a run's trace.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/worker/run_work.h"

namespace hilbert_ring::server {

// Thread-safe. Keeps this worker's share of a job's spans, and drops later ones except receiving.
class RunSpans {
 public:
  struct Label {
    v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
    int64_t step = 0, layer = 0;
  };

  // opened: the origin of times. workers: of the job, at least 1.
  RunSpans(Deadline opened, int workers);

  // Makes `control` note spans. Outlives the computation.
  void NoteIn(WorkControl& control);

  void Note(const Label& label, Deadline begin, Deadline end);

  void AddTo(v1::WorkerReport& report) const;

 private:
  const Deadline opened_;
  const int64_t most_;
  mutable Mutex mutex_;
  std::vector<v1::Span> spans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
