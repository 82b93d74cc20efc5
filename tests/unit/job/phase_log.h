// The course of a job as it is logged. A PhaseLog is the log's only sink during its life.
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

  std::vector<std::string> transitions(const std::string& job_id) const;

  // All lines, and the lines logged as errors, such as an unknown transition.
  std::vector<std::string> lines() const;
  std::vector<std::string> errors() const;

  void HoldAt(const std::string& transition);
  bool held() const;
  void Release();

 private:
  class Sink;
  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace hilbert_ring::testing
