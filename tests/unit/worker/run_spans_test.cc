#include "server/worker/run_spans.h"

#include <chrono>

#include "gtest/gtest.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::seconds;

const Deadline kOpened = Deadline() + std::chrono::hours(1);

v1::WorkerReport ReportOf(const RunSpans& spans) {
  v1::WorkerReport report;
  spans.AddTo(report);
  return report;
}

TEST(RunSpans, CountFromWhenTheRunWasOpened) {
  RunSpans spans(kOpened, 1);
  spans.Note({.kind = v1::Span::KIND_RECEIVE}, kOpened + seconds(2), kOpened + seconds(5));
  const v1::WorkerReport report = ReportOf(spans);
  ASSERT_EQ(report.spans_size(), 1);
  EXPECT_EQ(report.spans(0).kind(), v1::Span::KIND_RECEIVE);
  EXPECT_EQ(report.spans(0).begin_seconds(), 2);
  EXPECT_EQ(report.spans(0).end_seconds(), 5);
}

TEST(RunSpans, AWorkerHasItsPartOfTheJobsAndRoomForReceiving) {
  constexpr int kPart = wire::kMostSpansOfAJob / 16;
  RunSpans spans(kOpened, 16);
  for (int i = 0; i < kPart + 5; ++i) {
    spans.Note({.kind = v1::Span::KIND_ATTEND, .step = i}, kOpened, kOpened);
  }
  EXPECT_EQ(ReportOf(spans).spans_size(), kPart - 1);
  spans.Note({.kind = v1::Span::KIND_RECEIVE}, kOpened, kOpened);
  spans.Note({.kind = v1::Span::KIND_RECEIVE}, kOpened, kOpened);
  const v1::WorkerReport report = ReportOf(spans);
  ASSERT_EQ(report.spans_size(), kPart);
  EXPECT_EQ(report.spans(kPart - 1).kind(), v1::Span::KIND_RECEIVE);
}

}  // namespace
}  // namespace hilbert_ring::server
