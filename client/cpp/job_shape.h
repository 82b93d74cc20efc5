// A job's sizes and type: what its spec says of them, and what the headers of its tensors say.
//
//   JobShape shape(document.given, "the spec");
//   shape.LearnType(*q, v1::TENSOR_Q);  // where the spec names no dtype
//   shape.Take(*q, v1::TENSOR_Q);       // fills in tokens, heads and head_dim, or compares them
//   FillIn(shape.known(), spec);
//
// Messages name the file, the field and who says otherwise: "k.npy: tokens of K is 90 (axis 0
// of shape (90, 8, 64)), q.npy says 100".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/job_spec_json.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

class JobShape {
 public:
  // source: who says what is given, as messages name it.
  JobShape(const SpecShape& given, const std::string& source);

  // All fields, said by the spec.
  JobShape(const JobSpec& spec);  // NOLINT: a spec is a shape that is known

  // Takes the dtype from Q, K or V if it is not known yet. 16-bit integers may be bfloat16's bits
  // or numbers, and tell nothing. INVALID_ARGUMENT: a type that no job has.
  absl::Status LearnType(const NpyFile& file, v1::Tensor tensor);

  // INVALID_ARGUMENT when no file told the dtype, nor the spec.
  absl::Status CheckTypeKnown(const NpyFile& file, v1::Tensor tensor) const;

  // Compares a tensor's order, type and axes with what is known, and learns the axes that are not.
  // OUT and LSE may be float64 too.
  // INVALID_ARGUMENT where they disagree.
  absl::Status Take(const NpyFile& file, v1::Tensor tensor);

  const SpecShape& known() const { return known_; }

  // Of a tensor, in the order of its axes; all are known.
  std::vector<int64_t> SizesOf(v1::Tensor tensor) const;

  // "; q.npy says heads 4, head_dim 12", of the fields that files told; empty if none did.
  std::string ToldByFiles() const;

 private:
  struct Field {
    const char* name;
    std::optional<int64_t> SpecShape::*value;
    std::string source;  // who said it; empty: it is not known
    bool from_file = false;
  };

  size_t IndexOf(const char* name) const;
  absl::Status CheckType(const NpyFile& file, v1::Tensor tensor) const;
  absl::Status TakeAxes(const NpyFile& file, v1::Tensor tensor);

  SpecShape known_;
  std::array<Field, 5> fields_;
  std::string dtype_source_;
};

}  // namespace hilbert_ring::client
