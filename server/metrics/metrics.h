// The figures that /metrics serves, prefix hilbert_ring_.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace hilbert_ring::server {

struct JobSeconds {
  double queue = 0, ring = 0, receive = 0, compute = 0, send = 0, total = 0;
};

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // code: of the status, "OK" or as gRPC spells it.
  void CountJob(const std::string& code);
  void ObserveJob(const JobSeconds& seconds);    // of a job that ended well
  void CountRefused(const std::string& reason);  // a call that never became a job
  void CountRetry();                             // of a job whose workers were lost
  void ObserveCancel(double seconds);     // until a cancelled job's memory is free on a worker
  void CountRowsChecked(int64_t rows);    // computed again
  void CountRowsNotJudged(int64_t rows);  // which that could not be done for
  void CountMismatch(const std::string& worker);  // of a row that it sent
  void CountFailure(const std::string& worker);   // of a job or a ring, or it was not reached
  void AddTokens(int64_t tokens);
  void AddReceived(int64_t bytes);   // payload, from clients
  void AddSent(int64_t bytes);       // payload, to clients
  void AddExchanged(int64_t bytes);  // among workers

  void SetWorkersUp(int workers);
  void SetJobs(int running, int queued);
  void SetJobsInPhase(std::string_view phase, int jobs);  // of those whose spec is valid
  void SetWorkerUsed(const std::string& worker, int64_t bytes);
  void SetWorkerJob(const std::string& worker, int64_t peak_bytes, int64_t predicted_bytes);

  // A figure that a worker said of itself and that cannot be. figure: as its message calls it.
  void CountDropped(std::string_view figure);

  // Its series are no longer served.
  void RemoveWorker(const std::string& worker);

  // Nor are those of others than these, whatever was said of them after they left.
  void KeepWorkers(const std::set<std::string>& there);

  // All of it, in Prometheus's text format.
  std::string Serialize() const;
  static const char* ContentType() { return "text/plain; version=0.0.4; charset=utf-8"; }

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace hilbert_ring::server
