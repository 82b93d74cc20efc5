// What the course of a job was, as it is logged. While it is there it is the log's only sink.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace spdlog {
class logger;
}  // namespace spdlog

namespace hilbert_ring::testing {

class PhaseLog {
 public:
  PhaseLog();
  ~PhaseLog();

  // "open -> validating", ... in their order.
  std::vector<std::string> transitions(const std::string& job_id) const;

  // All lines, and those logged as errors: a way that there is none of, for one.
  std::vector<std::string> lines() const;
  std::vector<std::string> errors() const;

  // The next job that passes on so ("sending -> checking") waits there until Release.
  void HoldAt(const std::string& transition);
  bool held() const;
  void Release();

 private:
  class Sink;
  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace hilbert_ring::testing
