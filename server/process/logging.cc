#include "server/process/logging.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/details/os.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/process/log_sink.h"
#include "server/process/refusal_log.h"
#include "wire/control_characters.h"

namespace hilbert_ring::server {
namespace {

constexpr char kTimePattern[] = "%Y-%m-%dT%H:%M:%S.%e%z";
constexpr char kMessageFlag = '*';
constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %l %n[%P] %*";

using Json = nlohmann::ordered_json;

// Of the line that this thread is writing: a logger without a queue formats it in the same thread.
thread_local const std::vector<LogField>* line_fields = nullptr;

// One object a line. What is no UTF-8 is replaced.
class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
    Json line = {{"time", text(time)},
                 {"level", text(spdlog::level::to_string_view(message.level))},
                 {"process", text(message.logger_name)},
                 {"pid", spdlog::details::os::pid()},
                 {"message", text(message.payload)}};
    if (line_fields != nullptr) {
      for (const LogField& field : *line_fields) {
        std::visit([&](const auto& value) { line[std::string(field.name)] = value; }, field.value);
      }
    }
    const std::string dumped = line.dump(-1, ' ', false, Json::error_handler_t::replace) +
                               spdlog::details::os::default_eol;
    to.append(dumped.data(), dumped.data() + dumped.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_{kTimePattern, spdlog::pattern_time_type::local, ""};
};

// The message of a line of text. Workers, clients and peers have a say in it.
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

bool is_json = false;  // set once, before there are other threads

std::string AsText(const std::vector<LogField>& fields) {
  std::string text;
  for (const LogField& field : fields) {
    std::string value = std::visit([](const auto& v) { return absl::StrCat(v); }, field.value);
    if (value.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", std::string(field.name), "=", value);
  }
  return text;
}

// An error that gRPC or Protobuf would write to standard error itself, in a form of its own.
// Strangers cause as many as they like, by connections that speak no TLS say: the log has one a
// minute. `last`: the library ends the process, and this line says why.
void LogOfLibrary(const char* library, const std::string& text, bool last) {
  if (last) {
    spdlog::critical("{}: {}", library, text);
    return;
  }
  // The libraries take plain functions, and may log until the process has ended.
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
      spdlog::info("gRPC: {}", line->message);  // asked for with GRPC_VERBOSITY
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
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>(name, std::make_shared<LogSink>(STDERR_FILENO)));
  if (is_json) {
    spdlog::set_formatter(std::make_unique<JsonFormatter>());
  } else {
    spdlog::set_formatter(TextFormatter());
  }
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
  TakeLinesOfLibraries();
}

void LogEvent(spdlog::level::level_enum level, std::string_view event,
              const std::vector<LogField>& fields) {
  if (!spdlog::should_log(level)) return;
  if (!is_json) {
    spdlog::log(level, "{}: {}", event, AsText(fields));
    return;
  }
  line_fields = &fields;
  spdlog::log(level, "{}", event);
  line_fields = nullptr;
}

}  // namespace hilbert_ring::server
