#include "server/coordinator/status_page.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace hilbert_ring::server {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width">
<title>Hilbert Ring</title>
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #1b1f24; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #d8dee4; vertical-align: middle; }
th { font-weight: 600; color: #57606a; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: 1em; min-width: 12em; background: #eaeef2; border-radius: 3px; overflow: hidden; }
.bar span { display: block; height: 100%; }
.ready { color: #1a7f37; } .not-ready { color: #cf222e; } .empty { color: #57606a; }
.used { background: #0969da; } .progress { background: #1a7f37; }
.queue { background: #afb8c1; } .ring { background: #8250df; } .receive { background: #0969da; }
.compute { background: #1a7f37; } .send { background: #bf8700; }
.key span { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; border-radius: 2px; }
</style>
</head>
<body>
)";

std::string Escape(std::string_view text) {
  return absl::StrReplaceAll(
      std::string(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? absl::StrFormat("%.0f %s", value, kUnits[unit])
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Seconds(double seconds) {
  return seconds < 1000 ? absl::StrFormat("%.3g s", seconds) : absl::StrFormat("%.0f s", seconds);
}

std::string StateName(std::string_view name) {
  absl::string_view rest(name.data(), name.size());
  absl::ConsumePrefix(&rest, "STATE_");
  return absl::AsciiStrToLower(rest);
}

struct Cell {
  std::string html;
  bool number = false;
};
Cell Text(std::string_view text) { return {Escape(text)}; }
Cell Number(std::string_view text) { return {Escape(text), true}; }

void AddRow(const std::vector<Cell>& cells, std::string& html) {
  absl::StrAppend(&html, "<tr>");
  for (const Cell& cell : cells) {
    absl::StrAppend(&html, cell.number ? "<td class=\"number\">" : "<td>", cell.html, "</td>");
  }
  absl::StrAppend(&html, "</tr>\n");
}

void BeginTable(std::string_view title, const std::vector<Cell>& columns, std::string& html) {
  absl::StrAppend(&html, "<h2>", std::string(title), "</h2>\n<table>\n<tr>");
  for (const Cell& column : columns) {
    absl::StrAppend(&html, column.number ? "<th class=\"number\">" : "<th>", column.html, "</th>");
  }
  absl::StrAppend(&html, "</tr>\n");
}

void EndTable(std::string& html) { absl::StrAppend(&html, "</table>\n"); }

void AddNone(std::string_view what, std::string& html) {
  absl::StrAppend(&html, "<p class=\"empty\">", std::string(what), "</p>\n");
}

struct Part {
  std::string_view name;
  double amount = 0;
};

Cell Bar(const std::vector<Part>& parts, double whole) {
  std::string html = "<div class=\"bar\">";
  for (const Part& part : parts) {
    const double percent = whole > 0 ? std::clamp(100 * part.amount / whole, 0.0, 100.0) : 0;
    absl::StrAppendFormat(&html, "<span class=\"%s\" style=\"width:%.2f%%\" title=\"%s\"></span>",
                          std::string(part.name), percent, std::string(part.name));
  }
  absl::StrAppend(&html, "</div>");
  return {std::move(html)};
}

void AddWorkers(const v1::GetClusterResponse& cluster, std::string& html) {
  BeginTable("Workers",
             {Text("worker"), Text("state"), Text("kernel"), Text("device"), Text("memory of jobs"),
              Number("used"), Number("limit"), Text("job")},
             html);
  for (const v1::ClusterWorker& worker : cluster.workers()) {
    const std::string state = StateName(v1::ClusterWorker::State_Name(worker.state()));
    AddRow({Text(worker.address()),
            Text(worker.reason().empty() ? state : absl::StrCat(state, ": ", worker.reason())),
            Text(worker.kernel()), Text(worker.device()),
            Bar({{"used", static_cast<double>(worker.memory_used_bytes())}},
                static_cast<double>(worker.memory_limit_bytes())),
            Number(Bytes(worker.memory_used_bytes())), Number(Bytes(worker.memory_limit_bytes())),
            Text(worker.job_id())},
           html);
  }
  EndTable(html);
  if (cluster.workers_size() == 0) AddNone("No worker is registered.", html);
}

void AddRings(const v1::GetClusterResponse& cluster, std::string& html) {
  if (cluster.rings_size() == 0) return;
  BeginTable("Rings", {Text("ring"), Number("generation"), Number("workers"), Text("job")}, html);
  for (const v1::Ring& ring : cluster.rings()) {
    AddRow({Text(ring.ring_id()), Number(absl::StrCat(ring.generation())),
            Number(absl::StrCat(ring.members_size())), Text(ring.job_id())},
           html);
  }
  EndTable(html);
}

void AddJobs(const std::vector<v1::Job>& jobs, std::string& html) {
  BeginTable("Jobs",
             {Text("job"), Text("caller"), Text("state"), Text("progress"), Number("tokens"),
              Number("workers"), Number("since")},
             html);
  for (const v1::Job& job : jobs) {
    AddRow(
        {Text(job.job_id()), Text(job.caller()), Text(StateName(v1::Job::State_Name(job.state()))),
         Bar({{"progress", job.fraction()}}, 1), Number(absl::StrCat(job.tokens())),
         Number(absl::StrCat(job.workers())), Number(Seconds(job.seconds()))},
        html);
  }
  EndTable(html);
  if (jobs.empty()) AddNone("No job waits or runs.", html);
}

void AddEnded(const std::vector<EndedJob>& ended, std::string& html) {
  BeginTable("Last jobs",
             {Text("job"), Text("caller"), Text("code"), Text("phases"), Number("tokens"),
              Number("workers"), Number("seconds")},
             html);
  double longest = 0;
  for (const EndedJob& job : ended) longest = std::max(longest, job.seconds.total);
  for (const EndedJob& job : ended) {
    AddRow({Text(job.job_id), Text(job.caller), Text(job.code),
            Bar({{"queue", job.seconds.queue},
                 {"ring", job.seconds.ring},
                 {"receive", job.seconds.receive},
                 {"compute", job.seconds.compute},
                 {"send", job.seconds.send}},
                longest),
            Number(absl::StrCat(job.tokens)), Number(absl::StrCat(job.workers)),
            Number(Seconds(job.seconds.total))},
           html);
  }
  EndTable(html);
  if (ended.empty()) return AddNone("No job has ended yet.", html);
  absl::StrAppend(&html, "<p class=\"key\">phases:");
  for (const char* phase : {"queue", "ring", "receive", "compute", "send"}) {
    absl::StrAppend(&html, "<span class=\"", phase, "\"></span>", phase);
  }
  absl::StrAppend(&html, "</p>\n");
}

}  // namespace

std::string RenderStatusPage(const StatusPage& page) {
  std::string html(kHead);
  const v1::GetClusterResponse& cluster = page.cluster;
  absl::StrAppend(&html, "<h1>Hilbert Ring ", Escape(cluster.version()), ": <span class=\"",
                  cluster.ready() ? "ready\">ready" : "not-ready\">not ready", "</span></h1>\n",
                  "<p>Jobs that run: ", cluster.jobs_running(),
                  "; that wait: ", cluster.jobs_queued(), ".</p>\n");
  AddWorkers(cluster, html);
  AddRings(cluster, html);
  AddJobs(page.jobs, html);
  AddEnded(page.ended, html);
  absl::StrAppend(&html, "</body>\n</html>\n");
  return html;
}

}  // namespace hilbert_ring::server
