// The figures that a coordinator's /metrics serves, prefix hilbert_ring_; docs/metrics.md lists
// them. Counted here is what happens; what is, coordinator_figures.h says at each scrape.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/metrics/coordinator_figures.h"
#include "server/metrics/request_metrics.h"

namespace hilbert_ring::server {

struct JobSeconds {
  double queue = 0, ring = 0, receive = 0, compute = 0, exchange = 0, exposed_exchange = 0,
         send = 0, total = 0;
};

// What one worker did for a job.
struct WorkerShare {
  std::string worker;     // host:port
  std::string transport;  // of its ring: "gloo", "nccl", "none"
  double flops = 0, flops_planned = 0, compute_seconds = 0;
  int64_t bytes_received = 0, bytes_received_planned = 0;
  int64_t memory_peak_bytes = 0, memory_predicted_bytes = 0;
};

// Labels that there may be, so that their series are there before the first event.
struct MetricLabels {
  std::vector<std::string> methods;  // of gRPC
  std::vector<std::string> reasons;  // of statuses
  std::vector<std::string> causes;   // those of them for which a job is tried again
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(const MetricLabels& labels = {});
  ~Metrics();

  RequestMetrics& requests();

  // reason: as of the status, empty for OK.
  void CountJob(absl::StatusCode code, const std::string& reason);
  void ObserveJob(const JobSeconds& seconds);    // of a job that ended well
  void CountStreamEpoch();                       // of a stream without end, which ended well
  void CountRefused(const std::string& reason);  // a call that never became a job
  void CountExecution(absl::StatusCode code);
  void CountRetry(const std::string& cause);  // of a job whose workers were lost
  void ObserveCancel(double seconds);         // until a cancelled job's memory is free on a worker
  void CountRowsChecked(int64_t rows);        // computed again
  void CountRowsNotJudged(int64_t rows);      // which that could not be done for
  void CountMismatch(const std::string& worker);  // of a row that it sent
  void CountFailure(const std::string& worker);   // of a job or a ring, or it was not reached
  void CountJoined(const std::string& worker);
  void CountLeft();
  void ObserveRing(absl::StatusCode code, bool again, double seconds);  // again: it stood before
  void AddTokens(int64_t tokens);

  // A job of an encoder ended. Of kMostModels models, the first ones; all others together are
  // "other".
  static constexpr size_t kMostModels = 256;
  void CountModelJob(const std::string& model, absl::StatusCode code, int64_t tiles);
  void AddReceived(int64_t bytes);       // payload, from clients
  void AddSent(int64_t bytes);           // payload, to clients
  void AddNaiveExchange(int64_t bytes);  // that a ring which sends everything would have moved
  void AddShare(const WorkerShare& share);

  // A figure that a worker said of itself and that cannot be. figure: as its message calls it.

  // Its series are no longer served.
  void RemoveWorker(const std::string& worker);

  // A scrape removes series of workers that are not there, whatever was said of them after they
  // left. What is said of a worker from `Moment` on stays: it may have joined since the caller
  // looked who is there.
  //
  //   const int64_t looked = metrics.Moment();
  //   metrics.KeepWorkers(WhoIsThere(), looked);
  int64_t Moment() const;
  void KeepWorkers(const std::set<std::string>& there, int64_t looked);

  // All of it, in Prometheus's text format. version: of the build.
  std::string Serialize(const CoordinatorFigures& figures = {},
                        const std::string& version = "") const;
  static const char* ContentType() { return "text/plain; version=0.0.4; charset=utf-8"; }

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace hilbert_ring::server
