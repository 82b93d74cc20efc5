// Until when certificates are valid, for /metrics and the log: one that nobody renews ends the
// service.
//
//   CertificateWatch watch({{.name = "service", .flag = "--tls-cert", .path = "tls.crt"}});
//   watch.Show("http", pem);  // by a server that says itself what it shows
//   for (const auto& [certificate, seconds] : watch.Ends()) ...
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
    kChain,        // ends with the first of its certificates that does
    kAuthorities,  // ends with the last: while authorities change both are there
  };
  struct File {
    std::string name;  // in /metrics
    std::string flag, path;
    Holds holds = Holds::kChain;
  };

  // Those whose path is empty are left out. Warns in the log of each that has ended or does so
  // within 14 days, at once and then daily. `now`: the clock, for tests.
  explicit CertificateWatch(std::vector<File> files,
                            std::function<SystemClock::time_point()> now = SystemClock::now);

  // A chain in PEM that counts beside the files, in place of the one of this name before.
  void Show(const std::string& name, const std::string& pem);

  // By name, in seconds since 1970, of what can be read now.
  std::map<std::string, double> Ends() const;

  // Warns where it is time to.
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
