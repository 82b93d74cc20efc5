#include "client/cli/trace_json.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/repeated_field.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {
namespace {

using Json = nlohmann::ordered_json;

// Each activity of a worker has a track, in display order. The job's phases are consecutive and
// share one.
struct Track {
  std::string_view name;
  int number = 0;
};

Track TrackOf(v1::Span::Kind kind, bool of_job) {
  if (of_job) return {"phases", 0};
  switch (kind) {
    case v1::Span::KIND_RECEIVE:
      return {"receive", 1};
    case v1::Span::KIND_ATTEND:
      return {"attend", 2};
    case v1::Span::KIND_MERGE:
      return {"merge", 3};
    case v1::Span::KIND_RECEIVE_BLOCKS:
      return {"receive blocks", 4};
    case v1::Span::KIND_WAIT:
      return {"wait for blocks", 5};
    case v1::Span::KIND_SEND:
      return {"send", 6};
    case v1::Span::KIND_ROWS:
      return {"rows", 8};
    default:
      return {"other", 7};
  }
}

std::string_view PhaseOf(v1::Span::Kind kind) {
  switch (kind) {
    case v1::Span::KIND_QUEUE:
      return "queue";
    case v1::Span::KIND_RING:
      return "ring";
    case v1::Span::KIND_START:
      return "start";
    case v1::Span::KIND_RECEIVE:
      return "receive";
    case v1::Span::KIND_COMPUTE:
      return "compute";
    case v1::Span::KIND_SEND:
      return "send";
    default:
      return "other";
  }
}

void AddProcess(int process, const std::string& name, bool of_job,
                const google::protobuf::RepeatedPtrField<v1::Span>& spans, Json& events) {
  constexpr double kMicroseconds = 1e6;
  const auto name_it = [&](const char* what, int track, std::string_view given) {
    events.push_back({{"name", what},
                      {"ph", "M"},
                      {"pid", process},
                      {"tid", track},
                      {"args", {{"name", given}}}});
  };
  name_it("process_name", 0, name);
  events.push_back({{"name", "process_sort_index"},
                    {"ph", "M"},
                    {"pid", process},
                    {"args", {{"sort_index", process}}}});
  std::array<bool, 9> named = {};
  for (const v1::Span& span : spans) {
    const Track track = TrackOf(span.kind(), of_job);
    if (!std::exchange(named[track.number], true)) {
      name_it("thread_name", track.number, track.name);
    }
    Json event = {
        {"name", of_job ? PhaseOf(span.kind()) : track.name},
        {"cat", of_job ? "job" : "worker"},
        {"ph", "X"},
        {"pid", process},
        {"tid", track.number},
        {"ts", span.begin_seconds() * kMicroseconds},
        {"dur", std::max(0.0, span.end_seconds() - span.begin_seconds()) * kMicroseconds}};
    if (span.step() > 0) event["args"]["step"] = span.step();
    if (span.layer() > 0) event["args"]["layer"] = span.layer();
    events.push_back(std::move(event));
  }
}

}  // namespace

std::string TraceAsJson(const v1::Report& report) {
  Json events = Json::array();
  AddProcess(0, absl::StrCat("job ", report.job_id()), true, report.spans(), events);
  for (int rank = 0; rank < report.workers_size(); ++rank) {
    const v1::WorkerReport& worker = report.workers(rank);
    AddProcess(rank + 1, absl::StrCat("worker ", rank, " at ", worker.worker()), false,
               worker.spans(), events);
  }
  const Json trace = {{"displayTimeUnit", "ms"},
                      {"otherData",
                       {{"job_id", report.job_id()},
                        {"tokens", report.tokens()},
                        {"total_seconds", report.total_seconds()}}},
                      {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void RemoveSpans(v1::Report& report) {
  report.clear_spans();
  for (v1::WorkerReport& worker : *report.mutable_workers()) worker.clear_spans();
}

}  // namespace hilbert_ring::cli
