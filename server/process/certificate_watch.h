// Watches the expiry of certificates and reports it to /metrics and the log.
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
    kChain,        // expires with its first certificate to expire
    kAuthorities,  // expires with the last: a file has both while authorities change
  };
  struct File {
    std::string name;  // in /metrics
    std::string flag, path;
    Holds holds = Holds::kChain;
  };

  // Ignores empty paths. Logs certificates that expire within 14 days, at once and then daily.
  explicit CertificateWatch(std::vector<File> files,
                            std::function<SystemClock::time_point()> now = SystemClock::now);

  // Sets the chain of this name, in PEM, which counts beside the files.
  void Show(const std::string& name, const std::string& pem);

  std::map<std::string, double> Ends() const;  // by name, in seconds since 1970

  void Look();  // logs due warnings

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
