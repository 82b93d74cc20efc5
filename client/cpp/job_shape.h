// A job's sizes and type, from its spec and from the headers of its tensors.
//
//   JobShape shape(document.given, "the spec");
//   shape.LearnType(*q, v1::TENSOR_Q);  // if the spec has no dtype
//   shape.Take(*q, v1::TENSOR_Q);       // fills in tokens, heads and head_dim, or compares them
//   FillIn(shape.known(), spec);
//
// A message has the file, the field and the source of the conflicting value: "k.npy: tokens of K is
// 90 (axis 0 of shape (90, 8, 64)), must be 100 (q.npy)".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/job_spec_json.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Returns the type of floating-point numbers; bfloat16 is raw 16-bit. std::nullopt: another type.
std::optional<DataType> FloatTypeOf(wire::NpyType type);

std::vector<int64_t> TensorShape(const JobSpec& spec, v1::Tensor tensor);

class JobShape {
 public:
  // Messages name `source` as the origin of `given`.
  JobShape(const SpecShape& given, const std::string& source)
      : known_(given), source_(source), dtype_source_(source) {}
  JobShape(const JobSpec& spec);  // NOLINT: a spec is a shape that is known

  // Takes the dtype from Q, K or V if it is not known yet. 16-bit integers, which may be bfloat16's
  // bits or numbers, set no dtype. INVALID_ARGUMENT: a type that no job has.
  absl::Status LearnType(const NpyFile& file, v1::Tensor tensor);

  // Compares a tensor's order, type and axes with the known values, and stores unknown axes. OUT
  // and LSE may also be float64. INVALID_ARGUMENT: they disagree, or the dtype is not known.
  absl::Status Take(const NpyFile& file, v1::Tensor tensor);

  const SpecShape& known() const { return known_; }

  // Returns "; q.npy has heads 4, head_dim 12" with the values taken from files; empty without any.
  std::string ToldByFiles() const;

 private:
  struct Learned {
    absl::string_view axis;
    int64_t size;
    std::string path;
  };

  absl::Status CheckType(const NpyFile& file, v1::Tensor tensor) const;
  absl::Status TakeAxes(const NpyFile& file, v1::Tensor tensor);

  SpecShape known_;
  std::string source_, dtype_source_;
  std::vector<Learned> from_files_;  // in order
};

}  // namespace hilbert_ring::client
