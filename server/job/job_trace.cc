#include "server/job/job_trace.h"

#include <algorithm>
#include <chrono>

namespace hilbert_ring::server {
namespace {

constexpr auto kSameSpan = std::chrono::milliseconds(1);
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
  const MutexLock lock(mutex_);
  std::vector<Sent>& sent = of_ranks_[rank];
  const bool follows = !sent.empty() && begin - sent.back().end <= kSameSpan;
  if (follows || sent.size() == kMostOfARank) {
    sent.back().end = std::max(sent.back().end, end);
  } else {
    sent.push_back({begin, end});
  }
}

void SendSpans::AddTo(std::vector<v1::WorkerReport>& workers, Clock::time_point job_opened,
                      Clock::time_point run_opened) const {
  const double shift = SecondsBetween(job_opened, run_opened);
  const MutexLock lock(mutex_);
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    for (v1::Span& span : *workers[rank].mutable_spans()) {
      span.set_begin_seconds(span.begin_seconds() + shift);
      span.set_end_seconds(span.end_seconds() + shift);
    }
    for (const Sent& sent : of_ranks_[rank]) {
      *workers[rank].add_spans() = SpanOf(v1::Span::KIND_SEND, job_opened, sent.begin, sent.end);
    }
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
