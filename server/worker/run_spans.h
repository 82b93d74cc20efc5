// When the parts of a run took place, for a job that wants a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/worker/run_work.h"

namespace hilbert_ring::server {

// Thread-safe. It keeps this worker's part of the spans that a job may have; later ones are left
// out, but for that of receiving.
class RunSpans {
 public:
  struct Label {
    v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
    int64_t step = 0, layer = 0;
  };

  // opened: what their seconds count from. workers: of the job, 1 at least.
  RunSpans(Deadline opened, int workers);

  // `control` notes what is computed. This outlives the computation.
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
