// Checks an output against the definition: a sample of rows is computed again in float64.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/coordinates.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::client {

struct VerifyInputs {
  const JobSpec& spec;
  const Coordinates* coordinates = nullptr;  // where the ordering has them
  const NpyFile& q;                          // as OpenTensor opens them
  const NpyFile& k;
  const NpyFile& v;
  const NpyFile& out;
  const NpyFile* lse = nullptr;  // null: not checked
};

struct VerifyOptions {
  int64_t rows = 64;  // to compute again; all when there are fewer
  uint64_t seed = 0;  // of the sample
  int threads = 1;
};

// One number, and how far it is off.
struct Deviation {
  int64_t token = -1;
  int64_t head = 0;
  int64_t dim = 0;  // of OUT
  double actual = 0;
  double expected = 0;
  double error = 0;
  double tolerance = 0;
  double excess = 0;  // error / tolerance; above 1: off
};

struct VerifyFigures {
  double max_error = 0;
  Deviation worst;  // by excess
  // In the whole file, not in the sample: NaN, and infinities but for an LSE of -inf.
  int64_t not_finite = 0;
  int64_t first_not_finite_token = -1;
  bool ok() const { return not_finite == 0 && worst.excess <= 1; }
};

struct VerifyResult {
  int64_t rows = 0;
  VerifyFigures out;
  std::optional<VerifyFigures> lse;
  bool ok() const { return out.ok() && (!lse || lse->ok()); }
};

// What an output may be off by. The maxima are those of its row.
//   float32:  1e-5 |out| + max(2e-6, 2^-22 max|score| max|v|)
//   bfloat16: 2^-7 |out| + 2^-9 max|v|
//   float16:  2^-10 |out| + 2^-12 max|v|
double OutTolerance(DataType dtype, double out, double max_abs_score, double max_abs_value);
// 1e-5 (1 + |lse|), for any dtype.
double LseTolerance(double lse);

// Tokens of the sample, ascending and distinct; the first and the last token are always among them
// when there are two rows or more.
std::vector<int64_t> SampleTokens(int64_t tokens, int64_t rows, uint64_t seed);

// Errors of Permutation::Make. A deviation is no error but a result that is not ok().
absl::StatusOr<VerifyResult> Verify(const VerifyInputs& inputs, const VerifyOptions& options);

}  // namespace hilbert_ring::client
