#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace hilbert_ring::testing {

class CapturedLog {
 public:
  CapturedLog() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", sink_));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;

  std::string text() const { return sink_->text(); }
  int Count(std::string_view words) const {
    const std::string all = text();
    int count = 0;
    for (size_t at = all.find(words); at != std::string::npos; at = all.find(words, at + 1)) {
      ++count;
    }
    return count;
  }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      const std::lock_guard lock(mutex_);
      return text_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& line) override {
      text_.append(line.payload.data(), line.payload.size()).append("\n");
    }
    void flush_() override {}
    std::string text_;
  };
  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace hilbert_ring::testing
