// Log lines go to standard error through spdlog's default logger: spdlog::info("..."). A thread of
// spdlog's writes them: where the reader takes none, the oldest lines that wait are lost, and the
// caller never waits. What a program reads from them later has fields.
//
//   LogEvent(spdlog::level::info, "job ended", {{"job", id}, {"seconds", 1.5}});
//
//   text: 2026-01-01T12:00:00.000+00:00 info coordinator[7] job ended: job=a1, seconds=1.5
//   json: {"time":"...","level":"info","process":"coordinator","pid":7,"message":"job
//   ended","job":"a1",...}
#pragma once

#include <spdlog/common.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hilbert_ring::server {

// name: of the process, in every line. level: trace, debug, info, warn, error or off. format: text,
// or json, which is an object a line. Errors that gRPC and Protobuf find are lines of it, too, one
// a minute at most.
void StartLogging(const std::string& name, const std::string& level,
                  const std::string& format = "text");

// Waits until the lines before are written, for a second at most. Call it before the process ends.
void FlushLog();

struct LogField {
  std::string_view name;
  std::variant<std::string, int64_t, double> value;
};

// Text leaves out fields that are empty.
void LogEvent(spdlog::level::level_enum level, std::string_view event,
              const std::vector<LogField>& fields);

}  // namespace hilbert_ring::server
