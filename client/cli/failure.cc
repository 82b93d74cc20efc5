#include "client/cli/failure.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/errors.h"
#include "client/cpp/steady_clock.h"
#include "nlohmann/json.hpp"
#include "wire/control_characters.h"
#include "wire/status.h"

namespace hilbert_ring::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::Duration kTellAgain = absl::Seconds(10);

std::string ReasonBeyondCode(const absl::Status& status) {
  const std::string reason = wire::ReasonOf(status);
  return reason == absl::StatusCodeToString(status.code()) ? "" : reason;
}

std::string Describe(const absl::Status& status) {
  const std::string reason = ReasonBeyondCode(status);
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(),
                      reason.empty() ? "" : absl::StrCat(" (reason ", reason, ")"));
}

Json AsJson(const absl::Status& status) {
  Json json = {{"code", absl::StatusCodeToString(status.code())}};
  if (const std::string reason = ReasonBeyondCode(status); !reason.empty()) json["reason"] = reason;
  json["message"] = std::string(status.message());
  return json;
}

// People read `text`, programs `json`.
void Print(const GlobalOptions& global, const std::string& text, const Json& json) {
  if (global.format == OutputFormat::kJson) {
    // A message may quote a file's bytes that are not UTF-8.
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::fprintf(stderr, "%s\n", wire::PrintableJson(line).c_str());
  } else {
    std::fprintf(stderr, "hilbert-ring: %s\n", wire::EscapeControls(text).c_str());
  }
}

}  // namespace

int BadInput(const GlobalOptions& global, const absl::Status& status) {
  Print(global, Describe(status), {{"error", AsJson(status)}});
  return kExitBadInput;
}

absl::Status WithWords(const absl::Status& status) {
  if (!status.message().empty()) return status;
  const char* words =
      absl::IsUnimplemented(status)
          ? "the server has no such call: it is not a coordinator's gRPC port (--grpc-port, "
            "8001)"
          : "the server gave no details";
  return client::WithMessage(status, words);
}

int ServiceFailed(const GlobalOptions& global, const absl::Status& status) {
  const absl::Status told = WithWords(status);
  Json json = {{"error", AsJson(told)}};
  json["error"]["server"] = global.server;
  Print(global, Describe(told), json);
  // A status with a reason comes from the service itself.
  const bool unreached = absl::IsUnavailable(told) || absl::IsUnimplemented(told);
  if (unreached && ReasonBeyondCode(told).empty() && global.format == OutputFormat::kText) {
    std::fprintf(stderr,
                 "hilbert-ring: the server is %s; set another by --server or HILBERT_RING_SERVER\n",
                 global.server.c_str());
  }
  return kExitFailed;
}

void RetryTeller::Tell(const client::CallRetry& retry) {
  const absl::Time now = client::SteadyNow();
  if (retry.failure == told_ && now - told_at_ < kTellAgain) return;
  told_ = retry.failure;
  told_at_ = now;
  const double seconds = absl::ToDoubleSeconds(retry.wait);
  const std::string when =
      retry.away ? "when the service is back" : absl::StrFormat("in %.1f s", seconds);
  const Json json = {{"attempt", retry.attempt},
                     {"away", retry.away},
                     {"seconds", seconds},
                     {"error", AsJson(retry.failure)}};
  Print(global_,
        absl::StrCat(Describe(retry.failure), "; attempt ", retry.attempt, " follows ", when),
        {{"retry", json}});
}

void PrintNotes(const GlobalOptions& global, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    Print(global, absl::StrCat("note: ", note), {{"note", note}});
  }
}

void PrintProgress(const GlobalOptions& global, const ProgressLine& line, absl::Time now) {
  Print(global, line.Sentence(now), {{"progress", line.Json(now)}});
}

void PrintWarning(const GlobalOptions& global, const std::string& warning) {
  Print(global, absl::StrCat("warning: ", warning), {{"warning", warning}});
}

}  // namespace hilbert_ring::cli
