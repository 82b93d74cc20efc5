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

TEST(RunSpans, WhatIsComputedIsNotedByKindStepAndLayer) {
  RunSpans spans(kOpened, 1);
  WorkControl control;
  spans.NoteIn(control);
  const Deadline end = kOpened + seconds(1);
  control.execute.span(SpanKind::kAttend, 1, kOpened, end);
  control.execute.span(SpanKind::kReceiveBlocks, 2, kOpened, end);
  control.execute.span(SpanKind::kWait, 3, kOpened, end);
  control.attention_span(7, SpanKind::kMerge, 4, kOpened, end);
  control.rows_span(8, kOpened, end);
  const v1::WorkerReport report = ReportOf(spans);
  ASSERT_EQ(report.spans_size(), 5);
  const struct {
    v1::Span::Kind kind;
    int64_t step, layer;
  } expected[] = {{v1::Span::KIND_ATTEND, 1, 0},
                  {v1::Span::KIND_RECEIVE_BLOCKS, 2, 0},
                  {v1::Span::KIND_WAIT, 3, 0},
                  {v1::Span::KIND_MERGE, 4, 7},
                  {v1::Span::KIND_ROWS, 0, 8}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(report.spans(i).kind(), expected[i].kind) << i;
    EXPECT_EQ(report.spans(i).step(), expected[i].step) << i;
    EXPECT_EQ(report.spans(i).layer(), expected[i].layer) << i;
  }
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
