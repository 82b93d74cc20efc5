// Spans of time in a run's trace.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"
#include "server/worker/run_work.h"
#include "wire/transport.h"

namespace hilbert_ring::server {

inline v1::Span::Kind ProtoOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kAttend:
      return v1::Span::KIND_ATTEND;
    case SpanKind::kReceiveBlocks:
      return v1::Span::KIND_RECEIVE_BLOCKS;
    case SpanKind::kWait:
      return v1::Span::KIND_WAIT;
    case SpanKind::kMerge:
      return v1::Span::KIND_MERGE;
  }
  return v1::Span::KIND_UNSPECIFIED;
}

// Thread-safe. Keeps this worker's share of a job's spans, and drops later ones except receiving.
class RunSpans {
 public:
  struct Label {
    v1::Span::Kind kind = v1::Span::KIND_UNSPECIFIED;
    int64_t step = 0, layer = 0;
  };

  // opened: the origin of times. workers: of the job, at least 1.
  RunSpans(Deadline opened, int workers)
      : opened_(opened), most_(wire::kMostSpansOfAJob / workers) {}

  // Makes `control` note spans. Outlives the computation.
  void NoteIn(WorkControl& control) {
    control.execute.span = [this](SpanKind kind, int64_t step, Deadline begin, Deadline end) {
      Note({.kind = ProtoOf(kind), .step = step}, begin, end);
    };
    control.attention_span = [this](int64_t layer, SpanKind kind, int64_t step, Deadline begin,
                                    Deadline end) {
      Note({.kind = ProtoOf(kind), .step = step, .layer = layer}, begin, end);
    };
    control.rows_span = [this](int64_t layer, Deadline begin, Deadline end) {
      Note({.kind = v1::Span::KIND_ROWS, .layer = layer}, begin, end);
    };
  }

  void Note(const Label& label, Deadline begin, Deadline end) {
    const MutexLock lock(mutex_);
    // Receiving is noted last, and has room of its own.
    const int kept = label.kind == v1::Span::KIND_RECEIVE ? 0 : 1;
    if (std::ssize(spans_) >= most_ - kept) return;
    v1::Span& span = spans_.emplace_back();
    span.set_kind(label.kind);
    span.set_step(label.step);
    span.set_layer(label.layer);
    span.set_begin_seconds(SecondsBetween(opened_, begin));
    span.set_end_seconds(SecondsBetween(opened_, end));
  }

  void AddTo(v1::WorkerReport& report) const {
    const MutexLock lock(mutex_);
    report.mutable_spans()->Assign(spans_.begin(), spans_.end());
  }

 private:
  const Deadline opened_;
  const int64_t most_;
  mutable Mutex mutex_;
  std::vector<v1::Span> spans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
