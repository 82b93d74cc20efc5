#include "tests/faults/tally.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

template <typename Number>
Number FromEnvironment(const char* variable, Number otherwise) {
  Number value = 0;
  const char* const text = std::getenv(variable);
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

}  // namespace

int RoundsOf(int few) {
  return FromEnvironment("HILBERT_RING_FAULT_ROUNDS", AtDepth(few, few, 5 * few));
}

uint64_t FaultSeed(const std::string& test, uint64_t seed) {
  seed = FromEnvironment("HILBERT_RING_FAULT_SEED", seed);
  std::printf("%s: seed %llu\n", test.c_str(), static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at =
      std::min(values.size() - 1, static_cast<size_t>(part * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

void Tally::Count(const JobEnd& end, bool fault_happened, const std::string& trace) {
  ++jobs_;
  std::printf("%s%s\n  -> %.2f s, %d retries, %d attempts, %s %s%s%s\n", trace.c_str(),
              fault_happened ? "" : " (no fault)", end.seconds, end.retries, end.attempts,
              absl::StatusCodeToString(end.status.code()).c_str(), end.reason.c_str(),
              end.what.c_str(), end.failures.c_str());
  std::fflush(stdout);
  if (fault_happened) ++faults_;
  if (end.verdict == Verdict::kRight) ++right_;
  if (end.verdict == Verdict::kTyped) ++typed_;
  if (end.retries > 0) ++retried_;
  if (end.attempts > 1) ++attempted_again_;
  if (!end.status.ok()) {
    ++reasons_[absl::StrCat(absl::StatusCodeToString(end.status.code()), " ", end.reason)];
  }
  seconds_.push_back(end.seconds);
}

void Tally::Print() const {
  std::string reasons;
  for (const auto& [reason, count] : reasons_) {
    absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", count, " ", reason);
  }
  std::printf(
      "| %s | jobs %d | faults %d | right %d | retried by the service %d, by the client %d | typed "
      "%d (%s) | bad %d | seconds "
      "median %.2f, most %.2f |\n",
      name_.c_str(), jobs_, faults_, right_, retried_, attempted_again_, typed_, reasons.c_str(),
      bad(), Percentile(seconds_, 0.5), Percentile(seconds_, 1));
  std::fflush(stdout);
}

}  // namespace hilbert_ring::testing
