// Watches the expiry of certificates. /metrics and the log show it.
//
//   CertificateWatch watch({{"service", "--tls-cert", path, CertificateWatch::Holds::kChain}});
//   watch.Ends();                                 // reads the files
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

// Thread-safe.
class CertificateWatch {
 public:
  using SystemClock = std::chrono::system_clock;
  enum class Holds {
    kChain,        // expires when its first certificate does
    kAuthorities,  // expires when its last does: the file has old and new during a change
  };
  struct File {
    std::string name;  // label in /metrics
    std::string flag, path;
    Holds holds = Holds::kChain;
  };

  // Ignores empty paths. A thread warns of a file that expires within 14 days, or has no readable
  // certificate. It warns at once, then daily.
  explicit CertificateWatch(std::vector<File> files,
                            std::function<SystemClock::time_point()> now = SystemClock::now);

  // Adds a chain without a file to Ends(), or replaces it. The log has no warnings of it.
  void Show(const std::string& name, const std::string& pem);

  std::map<std::string, double> Ends() const;  // by name, in seconds since 1970

  // Logs the warnings that are due. The thread calls it each minute.
  void Look();

 private:
  std::optional<SystemClock::time_point> EndOf(const File& file) const;

  std::vector<File> files_;
  const std::function<SystemClock::time_point()> now_;
  mutable Mutex mutex_;
  std::map<std::string, SystemClock::time_point> shown_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, SystemClock::time_point> warned_ ABSL_GUARDED_BY(mutex_);
  std::optional<IntervalThread> watch_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
