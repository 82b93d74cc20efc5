#include "server/metrics/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, CountsJobs) {
  Metrics metrics;
  metrics.CountJob("OK");
  metrics.CountJob("OK");
  metrics.CountJob("CANCELLED");
  metrics.ObserveJob({.queue = 0.1, .receive = 1, .compute = 20, .send = 2, .total = 23.1});
  metrics.AddTokens(100);
  metrics.AddReceived(1);
  metrics.AddSent(2);
  metrics.AddExchanged(3);
  metrics.CountRowsChecked(8);
  metrics.CountRowsNotJudged(5);
  metrics.CountMismatch("a:1");
  metrics.CountDropped("flops");
  metrics.CountRefused("OPEN_TIMEOUT");
  metrics.SetJobs(1, 4);
  metrics.SetWorkersUp(2);
  metrics.SetJobsInPhase("parked", 3);
  metrics.SetJobsInPhase("parked", 2);
  metrics.SetJobsInPhase("sending", 1);
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("hilbert_ring_jobs_total{code=\"OK\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_jobs_total{code=\"CANCELLED\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_tokens_total 100\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_received_bytes_total 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_sent_bytes_total 2\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_exchanged_bytes_total 3\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_jobs_running 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_jobs_queued 4\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_jobs_in_phase{phase=\"parked\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_jobs_in_phase{phase=\"sending\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_workers_up 2\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_rows_checked_total 8\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_rows_not_judged_total 5\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_mismatches_total{worker=\"a:1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_figures_dropped_total{figure=\"flops\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_calls_refused_total{reason=\"OPEN_TIMEOUT\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_job_seconds_count{phase=\"compute\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_job_seconds_sum{phase=\"total\"} 23.1"));
}

TEST(Metrics, SeriesOfAWorkerLeaveWithIt) {
  Metrics metrics;
  metrics.SetWorkerUsed("a:1", 10);
  metrics.SetWorkerUsed("b:1", 20);
  metrics.SetWorkerJob("a:1", 30, 40);
  metrics.CountMismatch("a:1");
  std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_memory_used_bytes{worker=\"a:1\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_memory_peak_bytes{worker=\"a:1\"} 30\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_memory_predicted_bytes{worker=\"a:1\"} 40\n"));
  metrics.RemoveWorker("a:1");
  metrics.SetWorkerJob("a:1", 30, 40);  // of a job that ended after it
  text = metrics.Serialize();
  EXPECT_THAT(text, Not(HasSubstr("a:1")));
  EXPECT_THAT(text, HasSubstr("worker=\"b:1\"} 20\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_mismatches_total 1\n")) << "of all there ever were";
}

TEST(Metrics, WhatIsSaidOfAWorkerThatHasLeftDoesNotStay) {
  Metrics metrics;
  metrics.SetWorkerUsed("a:1", 10);
  metrics.RemoveWorker("a:1");
  metrics.SetWorkerUsed("a:1", 20);  // a beat that was under way
  metrics.CountMismatch("c:1");
  metrics.SetWorkerUsed("b:1", 30);
  metrics.KeepWorkers({"b:1"});
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, Not(HasSubstr("a:1")));
  EXPECT_THAT(text, Not(HasSubstr("c:1")));
  EXPECT_THAT(text, HasSubstr("worker=\"b:1\"} 30\n"));
}

}  // namespace
}  // namespace hilbert_ring::server
