#include "server/job/job_trace.h"

#include <algorithm>

namespace hilbert_ring::server {
namespace {

constexpr double kSameSpanSeconds = 1e-3;
constexpr size_t kMostOfARank = 1024;

v1::Span SpanOf(v1::Span::Kind kind, Clock::time_point opened, Clock::time_point begin,
                Clock::time_point end) {
  v1::Span span;
  span.set_kind(kind);
  span.set_begin_seconds(SecondsBetween(opened, begin));
  span.set_end_seconds(SecondsBetween(opened, end));
  return span;
}

}  // namespace

void SendSpans::Add(int rank, Clock::time_point begin, Clock::time_point end) {
  const v1::Span span = SpanOf(v1::Span::KIND_SEND, opened_, begin, end);
  const MutexLock lock(mutex_);
  std::vector<v1::Span>& sent = of_ranks_[rank];
  const bool follows =
      !sent.empty() && span.begin_seconds() - sent.back().end_seconds() <= kSameSpanSeconds;
  if (follows || sent.size() == kMostOfARank) {
    sent.back().set_end_seconds(std::max(sent.back().end_seconds(), span.end_seconds()));
  } else {
    sent.push_back(span);
  }
}

void SendSpans::AddTo(std::vector<v1::WorkerReport>& workers, Clock::time_point run_opened) const {
  const double shift = SecondsBetween(opened_, run_opened);
  const MutexLock lock(mutex_);
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    for (v1::Span& span : *workers[rank].mutable_spans()) {
      span.set_begin_seconds(span.begin_seconds() + shift);
      span.set_end_seconds(span.end_seconds() + shift);
    }
    workers[rank].mutable_spans()->Add(of_ranks_[rank].begin(), of_ranks_[rank].end());
  }
}

void AddPhases(const JobCourse& course, v1::Report& report) {
  const std::vector<JobCourse::Passage>& passages = course.passages();
  for (size_t i = 0; i + 1 < passages.size(); ++i) {  // the last phase is the check, and goes on
    const v1::Span::Kind kind = NamesOf(passages[i].phase).span;
    if (kind == v1::Span::KIND_UNSPECIFIED) continue;
    *report.add_spans() = SpanOf(kind, course.opened(), passages[i].at, passages[i + 1].at);
  }
}

}  // namespace hilbert_ring::server
