// Log lines go to standard error through spdlog's default logger: spdlog::info("..."). A thread
// writes them, so that callers never wait; if the reader is too slow, the oldest waiting lines are
// lost. Events for programs have fields.
//
//   LogEvent(spdlog::level::info, "job ended", {{"job", id}, {"seconds", 1.5}});
//
//   text: 2026-01-01T12:00:00.000+00:00 info coordinator[7] job ended: job=a1, seconds=1.5
//   json: {"time":"...","level":"info",...,"message":"job ended","job":"a1","seconds":1.5}
#pragma once

#include <spdlog/common.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hilbert_ring::server {

// Also logs errors of gRPC and Protobuf, at most one a minute. format: text or json.
void StartLogging(const std::string& name, const std::string& level,
                  const std::string& format = "text");

// Waits until earlier lines are written, 1 s at most. Call it before the process ends.
void FlushLog();

struct LogField {
  std::string_view name;
  std::variant<std::string, int64_t, double> value;
};

void LogEvent(spdlog::level::level_enum level, std::string_view event,
              const std::vector<LogField>& fields);

}  // namespace hilbert_ring::server
