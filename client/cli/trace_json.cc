#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/json_message.h"
#include "google/protobuf/repeated_field.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {
namespace {

using Json = nlohmann::ordered_json;

// Each activity of a worker has a track, in display order. The job's phases are consecutive and
// share one.
struct Track {
  v1::Span::Kind kind;
  const char* name;
};

constexpr Track kTracks[] = {{v1::Span::KIND_UNSPECIFIED, "phases"},
                             {v1::Span::KIND_RECEIVE, "receive"},
                             {v1::Span::KIND_ATTEND, "attend"},
                             {v1::Span::KIND_MERGE, "merge"},
                             {v1::Span::KIND_RECEIVE_BLOCKS, "receive blocks"},
                             {v1::Span::KIND_WAIT, "wait for blocks"},
                             {v1::Span::KIND_SEND, "send"},
                             {v1::Span::KIND_UNSPECIFIED, "other"},
                             {v1::Span::KIND_ROWS, "rows"}};

constexpr size_t kOtherTrack = 7;

size_t TrackOf(v1::Span::Kind kind, bool of_job) {
  if (of_job) return 0;
  const auto* track = std::ranges::find(kTracks, kind, &Track::kind);
  return track == std::end(kTracks) ? kOtherTrack : track - std::begin(kTracks);
}

void AddProcess(int process, const std::string& name, bool of_job,
                const google::protobuf::RepeatedPtrField<v1::Span>& spans, Json& events) {
  constexpr double kMicroseconds = 1e6;
  const auto name_it = [&](const char* what, size_t track, const std::string& given) {
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
  std::array<bool, std::size(kTracks)> named = {};
  for (const v1::Span& span : spans) {
    const size_t track = TrackOf(span.kind(), of_job);
    if (!std::exchange(named[track], true)) name_it("thread_name", track, kTracks[track].name);
    Json event = {
        {"name",
         of_job ? PlainName(v1::Span::Kind_Name(span.kind()), "other") : kTracks[track].name},
        {"cat", of_job ? "job" : "worker"},
        {"ph", "X"},
        {"pid", process},
        {"tid", track},
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

}  // namespace hilbert_ring::cli
