#include "tests/soak/growth.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/faults/tally.h"

namespace hilbert_ring::testing {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kMostGrowth = 0.02;
constexpr double kMostBytes = 8 * kMiB;
// gRPC's threads and connections come and go with the last moments' load.
constexpr int kMostDescriptors = 6, kMostThreads = 6;
constexpr size_t kCompared = 5;  // samples, of which the median counts

}  // namespace

Growth::Growth(Cluster& cluster) {
  processes_.push_back({.name = "coordinator", .pid = cluster.coordinator()});
  int number = 0;
  for (const pid_t pid : cluster.Workers()) {
    processes_.push_back({.name = absl::StrCat("worker ", number++), .pid = pid});
  }
}

void Growth::Sample(double seconds) {
  for (Process& process : processes_) {
    const ProcessAccount account = AccountOf(process.pid);
    if (!account.there || account.zombie) {
      gone_ = absl::StrCat(process.name, " ended after ", seconds, " s; ");
      continue;
    }
    process.points.push_back({.seconds = seconds, .account = account});
  }
}

void Growth::Print() const {
  std::printf("\n| seconds |");
  for (const Process& process : processes_) {
    std::printf(" %s MiB | descriptors | threads |", process.name.c_str());
  }
  std::printf("\n| --- |");
  for (size_t i = 0; i < processes_.size(); ++i) std::printf(" --- | --- | --- |");
  for (size_t row = 0; row < processes_.front().points.size(); ++row) {
    std::printf("\n| %.0f |", processes_.front().points[row].seconds);
    for (const Process& process : processes_) {
      if (row >= process.points.size()) continue;
      const ProcessAccount& account = process.points[row].account;
      std::printf(" %.1f | %d | %d |", static_cast<double>(account.memory.resident()) / kMiB,
                  account.descriptors, account.threads);
    }
  }
  std::printf("\n\n");
  std::fflush(stdout);
}

Growth::Change Growth::ChangeOf(const Process& process, double first_part) {
  std::vector<Point> late;
  for (const Point& point : process.points) {
    if (point.seconds >= first_part) late.push_back(point);
  }
  if (late.empty()) return {};
  const size_t compared = std::min(kCompared, (late.size() + 1) / 2);
  const auto median = [&](size_t from, auto figure) {
    std::vector<double> values;
    for (size_t i = from; i < from + compared; ++i) {
      values.push_back(static_cast<double>(figure(late[i].account)));
    }
    return Percentile(values, 0.5);
  };
  const size_t last = late.size() - compared;
  const auto resident = [](const ProcessAccount& account) { return account.memory.resident(); };
  const auto descriptors = [](const ProcessAccount& account) { return account.descriptors; };
  const auto threads = [](const ProcessAccount& account) { return account.threads; };
  return {.begin = median(0, resident),
          .end = median(last, resident),
          .descriptors = static_cast<int>(median(last, descriptors) - median(0, descriptors)),
          .threads = static_cast<int>(median(last, threads) - median(0, threads))};
}

std::string Growth::Failures(double first_part) const {
  std::string failures = gone_;
  for (const Process& process : processes_) {
    const Change change = ChangeOf(process, first_part);
    if (change.begin == 0) absl::StrAppend(&failures, process.name, " was not sampled; ");
    if (change.end - change.begin > std::max(kMostGrowth * change.begin, kMostBytes)) {
      absl::StrAppend(&failures, process.name, " grew from ", change.begin / kMiB, " to ",
                      change.end / kMiB, " MiB; ");
    }
    if (change.descriptors > kMostDescriptors) {
      absl::StrAppend(&failures, process.name, " has ", change.descriptors, " descriptors more; ");
    }
    if (change.threads > kMostThreads) {
      absl::StrAppend(&failures, process.name, " has ", change.threads, " threads more; ");
    }
  }
  return failures;
}

}  // namespace hilbert_ring::testing
