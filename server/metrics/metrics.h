// A coordinator's metrics, which docs/metrics.md lists. This class counts events;
// coordinator_figures.h has the state at each scrape.
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

// Values of labels whose series exist before the first event.
struct MetricLabels {
  std::vector<std::string> methods;  // of gRPC
  std::vector<std::string> reasons;  // of statuses
  std::vector<std::string> causes;   // reasons for which a job is tried again
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(const MetricLabels& labels = {});
  ~Metrics();

  RequestMetrics& requests();

  // reason: empty for OK.
  void CountJob(absl::StatusCode code, const std::string& reason);
  void ObserveJob(const JobSeconds& seconds);    // of a job without error
  void CountStreamEpoch();                       // of a stream without end
  void CountRefused(const std::string& reason);  // a call that never became a job
  void CountExecution(absl::StatusCode code);
  void CountRetry(const std::string& cause);  // of a job whose workers were lost
  void ObserveCancel(double seconds);         // until a cancelled job's memory is free on a worker
  void CountRowsChecked(int64_t rows);
  void CountRowsNotJudged(int64_t rows);          // not finite, or scores beyond float32
  void CountMismatch(const std::string& worker);  // a wrong row of the worker
  void CountFailure(const std::string& worker);   // of a job, a ring or a greeting
  void CountJoined(const std::string& worker);
  void CountLeft();
  void ObserveRing(absl::StatusCode code, bool again, double seconds);  // again: formed before
  void AddTokens(int64_t tokens);

  // Counts an encoder's job. Models after the first kMostModels are "other".
  static constexpr size_t kMostModels = 256;
  void CountModelJob(const std::string& model, absl::StatusCode code, int64_t tiles);
  void AddReceived(int64_t bytes);       // payload, from clients
  void AddSent(int64_t bytes);           // payload, to clients
  void AddNaiveExchange(int64_t bytes);  // if every worker received all rows
  void AddShare(const v1::WorkerReport& share);

  void RemoveWorker(const std::string& worker);

  // KeepWorkers removes series of workers that are not in `there`, except those with events after
  // `looked`: such a worker may have joined after the caller listed the workers.
  //
  //   const int64_t looked = metrics.Moment();
  //   metrics.KeepWorkers(RegisteredWorkers(), looked);
  int64_t Moment() const;
  void KeepWorkers(const std::set<std::string>& there, int64_t looked);

  std::string Serialize(const CoordinatorFigures& figures = {},
                        const std::string& version = "") const;
  static const char* ContentType() { return "text/plain; version=0.0.4; charset=utf-8"; }

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace hilbert_ring::server
