// Jobs whose right result is known, run through the client library, and how they end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "tests/faults/fault_answer.h"

namespace hilbert_ring::testing {

struct FaultJob {
  JobSpec spec;
  std::map<v1::Tensor, std::string> tensors;  // bytes of the job's type; no coordinates
  std::vector<int64_t> coords;
  std::shared_ptr<const FaultAnswer> answer;
  double seconds = 0;  // that it takes undisturbed
};

// A random job of up to some hundred tokens, any kind; every row is known by the definition.
absl::StatusOr<FaultJob> MakeSmallJob(std::mt19937_64& random);

// Some thousand tokens, segments that span the workers, a part of a second of compute. Runs once,
// undisturbed, at the service at `address`.
absl::StatusOr<FaultJob> MakeMiddleJob(std::mt19937_64& random, const std::string& address);

// Likewise. Many tokens, little compute: receiving and sending are most of it.
absl::StatusOr<FaultJob> MakeWideJob(std::mt19937_64& random, const std::string& address);

enum class Verdict {
  kRight,  // the expected result
  kTyped,  // an error that says why and blames nobody wrongly
  kBad,    // a wrong result, an error without a reason or of a kind that faults must not cause
};

struct JobEnd {
  Verdict verdict = Verdict::kBad;
  absl::Status status;
  std::string reason;  // of the status
  std::string what;    // what is bad
  double seconds = 0;
  int retries = 0;       // in the service, of which the report tells
  int rows_checked = 0;  // likewise
  int attempts = 1;      // of the client library
  std::string failures;  // of its attempts but the last
};

// One segment length, float32, rows of zeros, so that the result is zeros too.
FaultJob MakeZeroJob(int64_t tokens, int64_t heads, int64_t dim, int64_t segment);

// The whole call, its deadline included.
JobEnd RunJob(const std::string& address, const FaultJob& job,
              const client::AttendOptions& options);

// Small and random, at most some tries within `limit`: whether the service goes on. Says in `tries`
// how many it took; empty, or what went wrong.
std::string RunNextJob(const std::string& address, std::mt19937_64& random, absl::Duration limit,
                       int& tries);

// What a spec looks like, on one line.
std::string Describe(const FaultJob& job);

}  // namespace hilbert_ring::testing
