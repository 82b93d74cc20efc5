#include "bench/measure.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/multiply_add.h"
#include "engine/device/cpu/machine.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kMultiplyAddSteps = 4'000'000;  // about 7 ms

using Clock = std::chrono::steady_clock;

// Seconds from the first thread's start to the last one's end.
double SecondsOnThreads(int threads, const std::function<void(int)>& work) {
  std::barrier ready(threads);
  std::vector<Clock::time_point> starts(threads), ends(threads);
  std::vector<std::thread> running;
  running.reserve(threads);
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ready.arrive_and_wait();
      starts[i] = Clock::now();
      work(i);
      ends[i] = Clock::now();
    });
  }
  for (std::thread& thread : running) thread.join();
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) -
                                       *std::min_element(starts.begin(), starts.end()))
      .count();
}

}  // namespace

double SecondsOf(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double MultiplyAddGflops(int threads) {
  std::vector<int64_t> operations(threads);
  const double seconds =
      SecondsOnThreads(threads, [&](int i) { operations[i] = MultiplyAdds(kMultiplyAddSteps); });
  int64_t all = 0;
  for (const int64_t count : operations) all += count;
  return static_cast<double>(all) / seconds * 1e-9;
}

std::string MachineLine() {
  return absl::StrCat(ProcessorName(), ", ", MultiplyAddTarget(), ", threads ", UsableThreads());
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.at(0).size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line("|");
    for (size_t i = 0; i < rows[r].size(); ++i) {
      if (i == 0) {
        absl::StrAppendFormat(&line, " %-*s |", static_cast<int>(widths[i]), rows[r][i]);
      } else {
        absl::StrAppendFormat(&line, " %*s |", static_cast<int>(widths[i]), rows[r][i]);
      }
    }
    std::printf("%s\n", line.c_str());
    if (r > 0) continue;
    line.assign(1, '|');
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string dashes(widths[i] - 1, '-');
      absl::StrAppend(&line, " ", dashes, i == 0 ? "- |" : ": |");
    }
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

std::string Number(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }

}  // namespace hilbert_ring::bench
