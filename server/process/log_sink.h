// Where log lines go: standard error, for as long as somebody takes them. A service does not wait
// for whoever reads its log: when a pipe, a socket or a terminal takes nothing for a moment, lines
// are lost until it does again, and a line says how many. Whoever lost a line is not waited for in
// the next ten seconds.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Lines are written whole or not at all, but for what an error of the file cuts off.
class LogSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // descriptor: must outlive it. patience: how long a line waits that finds no room, where none was
  // lost within ten seconds. A pipe or terminal that cannot be opened again by this process, as
  // where it has changed its user, is asked for room before each write, and may still block.
  explicit LogSink(int descriptor,
                   std::chrono::milliseconds patience = std::chrono::milliseconds(100));
  ~LogSink() override;
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

  std::string Formatted(const spdlog::details::log_msg& message);
  bool WriteRest(std::chrono::milliseconds patience);
  void GiveUpRest();

  const int descriptor_;
  const bool is_socket_;
  const int own_;  // the same file, opened again so that writing does not block; -1: there is none
  const std::chrono::milliseconds patience_;
  std::string rest_;  // of lines that were taken in part
  char last_ = '\n';  // that was taken
  int64_t told_ = 0;  // lost lines of which a line in rest_ tells
  int64_t lost_ = 0;  // lines, since one told of them
  std::optional<Clock::time_point> lost_at_;
};

}  // namespace hilbert_ring::server
