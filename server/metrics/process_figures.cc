#include "server/metrics/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "server/metrics/families.h"

namespace hilbert_ring::server {
namespace {

struct ProcessStat {
  double cpu_ticks = 0, start_ticks = 0, threads = 0, virtual_bytes = 0, resident_pages = 0;
};

// The name in parentheses may have blanks and parentheses itself.
std::optional<ProcessStat> ReadStat(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::vector<std::string> values;  // from field 3 of proc(5) on
  for (std::string value; fields >> value;) values.push_back(value);
  constexpr size_t kFirst = 3, kLast = 24;
  if (values.size() <= kLast - kFirst) return std::nullopt;
  const auto field = [&](size_t number) {
    return std::strtod(values[number - kFirst].c_str(), {});
  };
  return ProcessStat{.cpu_ticks = field(14) + field(15),
                     .start_ticks = field(22),
                     .threads = field(20),
                     .virtual_bytes = field(23),
                     .resident_pages = field(24)};
}

std::optional<double> BootTime(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  }
  return std::nullopt;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessFigures(const std::string& proc) {
  std::vector<prometheus::MetricFamily> families;
  const auto gauge = [&](const char* name, const char* help, double value) {
    ShowGauge(families, name, help, value);
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (const auto stat = ReadStat(proc + "/self/stat")) {
    ShowCounters(families, "process_cpu_seconds_total",
                 "Processor time of the process, user and system",
                 {{.value = stat->cpu_ticks / ticks}});
    gauge("process_resident_memory_bytes", "Resident memory of the process",
          stat->resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    gauge("process_virtual_memory_bytes", "Address space of the process", stat->virtual_bytes);
    gauge("process_threads", "Threads of the process", stat->threads);
    if (const auto boot = BootTime(proc + "/stat")) {
      gauge("process_start_time_seconds", "When the process started, in seconds since 1970",
            *boot + stat->start_ticks / ticks);
    }
  }
  std::error_code error;
  const std::filesystem::directory_iterator open(proc + "/self/fd", error);
  if (!error) {
    gauge("process_open_fds", "File descriptors that are open",
          static_cast<double>(std::distance(begin(open), end(open))));
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    gauge("process_max_fds", "File descriptors that may be open",
          static_cast<double>(limit.rlim_cur));
  }
  return families;
}

std::string SerializeWithProcess(std::vector<prometheus::MetricFamily> families,
                                 const std::map<std::string, double>& certificate_ends,
                                 const std::string& version) {
  std::ranges::move(ProcessFigures(), std::back_inserter(families));
  std::vector<Sample> ends;
  for (const auto& [certificate, end] : certificate_ends) {
    ends.push_back({end, {{"certificate", certificate}}});
  }
  ShowGauges(families, "hilbert_ring_certificate_expiry_timestamp_seconds",
             "When a certificate of the process expires, in seconds since 1970", ends);
  ShowGauges(families, "hilbert_ring_build_info", "The build that runs; always 1",
             {{1, {{"version", version}}}});
  return SerializeText(families);
}

}  // namespace hilbert_ring::server
