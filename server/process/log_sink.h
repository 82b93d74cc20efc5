// Where log lines go: standard error, for as long as somebody takes them. A service does not wait
// for whoever reads its log: when a pipe, a socket or a terminal takes nothing for a moment, lines
// are lost until it does again, and a line says how many.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace hilbert_ring::server {

// Lines are written whole or not at all.
class LogSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // descriptor: must outlive it. patience: how long the first line waits that finds no room.
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

  const int descriptor_;
  const bool is_socket_;
  const int own_;  // the same file, opened again so that writing does not block; -1: there is none
  const std::chrono::milliseconds patience_;
  std::string rest_;  // of lines that were taken in part
  int64_t lost_ = 0;  // lines, since one was written
};

}  // namespace hilbert_ring::server
