// The end of a job: report, metrics and log.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/job/job_trace.h"
#include "server/job/served_job.h"
#include "server/process/logging.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

void AddNotFinite(const v1::WorkerReport& worker, v1::Report& report) {
  if (worker.rows_not_finite() <= 0) return;
  const bool first = report.rows_not_finite() == 0 ||
                     worker.first_row_not_finite() < report.first_row_not_finite();
  if (first) report.set_first_row_not_finite(worker.first_row_not_finite());
  report.set_rows_not_finite(report.rows_not_finite() + worker.rows_not_finite());
}

constexpr size_t kMostNoteBytes = 1024;  // of a line of the log

std::string NotesOf(const v1::Report& report) {
  std::string notes = absl::StrJoin(report.notes(), "; ");
  if (notes.size() <= kMostNoteBytes) return notes;
  const size_t bytes = notes.size();
  notes.resize(kMostNoteBytes);
  return absl::StrCat(notes, "... (", bytes, " bytes)");
}

}  // namespace

void ServedJob::CompleteReport() {
  v1::Report& report = report_;
  seconds_.ring = report.ring_seconds();
  seconds_.receive = report.receive_seconds();
  seconds_.compute = report.compute_seconds();
  seconds_.send = report.send_seconds();
  seconds_.total = SecondsBetween(course_.opened(), Now());
  report.set_job_id(open_.job_id());
  report.set_tokens(spec().tokens);
  report.set_tokens_per_second(static_cast<double>(spec().tokens) / seconds_.total);
  report.set_queue_seconds(seconds_.queue);
  report.set_total_seconds(seconds_.total);
  report.set_bytes_exchanged_planned(plan_->costs.bytes_exchanged);
  report.set_bytes_exchanged_naive(plan_->costs.bytes_exchanged_naive);
  report.set_retries(static_cast<int32_t>(failures_.size()));
  report.set_by_reference(rows_->InFiles());
  int64_t exchanged = 0;
  for (int rank = 0; rank < report.workers_size(); ++rank) {
    const v1::WorkerReport& worker = report.workers(rank);
    exchanged += worker.bytes_received();
    AddNotFinite(worker, report);
    if (!worker.library_refusal().empty()) {
      report.add_notes(absl::StrCat("worker ", worker.worker(),
                                    " computed with its own kernels because the library refused: ",
                                    worker.library_refusal()));
    }
    if (!grant_.express()) {
      services_.cluster.rate.Observe(worker.worker(),
                                     worker.flops() + plan_->costs.workers[rank].weight_flops,
                                     worker.compute_seconds());
    }
    seconds_.exchange = std::max(seconds_.exchange, worker.exchange_seconds());
    seconds_.exposed_exchange =
        std::max(seconds_.exposed_exchange, worker.exposed_exchange_seconds());
    services_.observers.metrics.AddShare(worker);
  }
  report.set_bytes_exchanged(exchanged);
  services_.observers.metrics.AddNaiveExchange(report.bytes_exchanged_naive());
  if (open_.want_trace()) AddPhases(course_, report);
  work_->AddTo(report);
}

void ServedJob::NoteEnd(const absl::Status& status) {
  seconds_.total = SecondsBetween(course_.opened(), Now());
  const int workers = static_cast<int>(grant_.members.size());  // in the last execution
  services_.observers.jobs.NoteEnded({.caller = caller_.name,
                                      .job_id = open_.job_id(),
                                      .code = absl::StatusCodeToString(status.code()),
                                      .tokens = tokens(),
                                      .workers = workers,
                                      .seconds = seconds_});
  std::vector<LogField> fields = {{"job", open_.job_id()},
                                  {"code", absl::StatusCodeToString(status.code())},
                                  {"caller", caller_.name},
                                  {"tokens", tokens()},
                                  {"workers", int64_t{workers}},
                                  {"seconds", seconds_.total},
                                  {"bytes_received", job_ ? job_->bytes_received : 0},
                                  {"bytes_sent", job_ ? job_->bytes_sent.load() : 0},
                                  {"traceparent", traceparent_}};
  if (status.ok()) {
    fields.insert(fields.end(), {{"bytes_exchanged", report_.bytes_exchanged()},
                                 {"queue_seconds", seconds_.queue},
                                 {"ring_seconds", seconds_.ring},
                                 {"receive_seconds", seconds_.receive},
                                 {"compute_seconds", seconds_.compute},
                                 {"send_seconds", seconds_.send},
                                 {"retries", int64_t{report_.retries()}}});
    if (report_.notes_size() > 0) {
      const LogField notes = {"notes", NotesOf(report_)};  // copied: GCC 12 warns if it is moved
      fields.push_back(notes);
    }
  } else {
    fields.insert(fields.end(),
                  {{"reason", wire::ReasonOf(status)}, {"error", std::string(status.message())}});
  }
  // A stream has a line of the log itself.
  const auto well = course_.is_epoch() ? spdlog::level::debug : spdlog::level::info;
  LogEvent(status.ok() ? well : spdlog::level::warn, "job ended", fields);
}

}  // namespace hilbert_ring::server
