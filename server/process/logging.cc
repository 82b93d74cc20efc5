#include "server/process/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/async.h>
#include <spdlog/details/os.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/process/refusal_log.h"
#include "wire/control_characters.h"

namespace hilbert_ring::server {
namespace {

constexpr char kTimePattern[] = "%Y-%m-%dT%H:%M:%S.%e%z";
constexpr char kMessageFlag = '*';
constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %l %n[%P] %*";
constexpr char kEvent[] = "event";     // source of lines whose payload is JSON
constexpr size_t kQueuedLines = 4096;  // 1.6 MB
constexpr std::chrono::seconds kFlushLimit{1};

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
    Json line = {{"time", text(time)},
                 {"level", text(spdlog::level::to_string_view(message.level))},
                 {"process", text(message.logger_name)},
                 {"pid", spdlog::details::os::pid()}};
    const std::string payload = text(message.payload);
    std::string dumped = Dump(line);
    dumped.back() = ',';
    const bool is_event = message.source.filename == kEvent;
    dumped += (is_event ? payload : Dump(Json{{"message", payload}})).substr(1) + "\n";
    to.append(dumped.data(), dumped.data() + dumped.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_{kTimePattern, spdlog::pattern_time_type::local, ""};
};

// Escapes a line's message, parts of which workers, clients and peers send.
class EscapedMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& to) override {
    const std::string escaped =
        wire::EscapeControls({message.payload.data(), message.payload.size()});
    to.append(escaped.data(), escaped.data() + escaped.size());
  }

  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<EscapedMessage>();
  }
};

std::unique_ptr<spdlog::formatter> TextFormatter() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<EscapedMessage>(kMessageFlag).set_pattern(kTextPattern);
  return formatter;
}

// Its line is written after all earlier lines.
class FlushMark : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  std::future<void> written() { return written_.get_future(); }

 private:
  void sink_it_(const spdlog::details::log_msg& /*line*/) override { written_.set_value(); }
  void flush_() override {}
  std::promise<void> written_;
};

std::shared_ptr<spdlog::logger> QueuedLogger(const std::string& name, spdlog::sink_ptr sink) {
  return std::make_shared<spdlog::async_logger>(name, std::move(sink), spdlog::thread_pool(),
                                                spdlog::async_overflow_policy::overrun_oldest);
}

bool is_json = false;  // set before other threads start

std::string AsText(const std::vector<LogField>& fields) {
  std::string text;
  for (const LogField& field : fields) {
    std::string value = std::visit([](const auto& v) { return absl::StrCat(v); }, field.value);
    if (value.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", std::string(field.name), "=", value);
  }
  return text;
}

// Logs an error of gRPC or Protobuf, one a minute at most: unauthenticated callers cause any
// number, for example by connections without TLS. last: the library ends the process after it.
void LogOfLibrary(const char* library, const std::string& text, bool last) {
  if (last) {
    spdlog::critical("{}: {}", library, text);
    FlushLog();
    return;
  }
  // Never destroyed: the libraries may log until the process ends.
  static RefusalLog& errors = *new RefusalLog;
  if (const auto since = errors.Note(Clock::now())) {
    spdlog::warn("{}: {} (errors of libraries since the last such line: {})", library, text,
                 *since);
  }
}

void TakeLinesOfLibraries() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    if (line->severity == GPR_LOG_SEVERITY_ERROR) {
      LogOfLibrary("gRPC", line->message, absl::StartsWith(line->message, "assertion failed"));
    } else {
      spdlog::info("gRPC: {}", line->message);  // with GRPC_VERBOSITY
    }
  });
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel level, const char* /*file*/,
                                     int /*line*/, const std::string& message) {
    LogOfLibrary("Protobuf", message, level == google::protobuf::LOGLEVEL_FATAL);
  });
}

}  // namespace

void StartLogging(const std::string& name, const std::string& level, const std::string& format) {
  is_json = format == "json";
  spdlog::init_thread_pool(kQueuedLines, 1);
  spdlog::set_default_logger(QueuedLogger(name, std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  if (is_json) {
    spdlog::set_formatter(std::make_unique<JsonFormatter>());
  } else {
    spdlog::set_formatter(TextFormatter());
  }
  spdlog::set_level(spdlog::level::from_str(level));
  TakeLinesOfLibraries();
  std::set_terminate([] {
    try {
      if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      spdlog::critical("the process ends: {}", error.what());
    } catch (...) {
    }
    FlushLog();
    std::abort();
  });
}

void FlushLog() {
  if (spdlog::thread_pool() == nullptr) return;
  const auto mark = std::make_shared<FlushMark>();
  std::future<void> written = mark->written();
  QueuedLogger("", mark)->critical("");
  written.wait_for(kFlushLimit);
}

void LogEvent(spdlog::level::level_enum level, std::string_view event,
              const std::vector<LogField>& fields) {
  if (!spdlog::should_log(level)) return;
  if (!is_json) {
    spdlog::log(level, "{}: {}", event, AsText(fields));
    return;
  }
  Json line = {{"message", event}};
  for (const LogField& field : fields) {
    std::visit([&](const auto& value) { line[std::string(field.name)] = value; }, field.value);
  }
  spdlog::log(spdlog::source_loc(kEvent, 1, kEvent), level, "{}", Dump(line));
}

}  // namespace hilbert_ring::server
