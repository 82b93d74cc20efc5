// Job specs as JSON, with the field names of tests/golden/*/case.json.
//
//   {"tokens": 4096, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64, "dtype":
//   "float32",
//    "segments": [1024, 4096], "dilations": [1, 2], "mixing": "head_groups", "causal": false,
//    "scale": null, "tail": "mask", "average_groups": true, "sequence_lengths": null,
//    "ordering": {"curve": "hilbert", "scope": "qkv", "window": 0, "grid": [64, 64]}}
//
// tokens, heads, head_dim, segments and dilations are required. kv_heads defaults to heads,
// value_dim to head_dim, dtype to "float32", the rest to the values above; null means the default.
// In "ordering", "coords_file" (the name is not opened here; two axes unless "coords_axes" says 3,
// or the file's shape does) or "coords" (a list of rows) announces coordinates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct JobSpecDocument {
  JobSpec spec;                 // not yet validated as a whole: call Validate
  std::vector<int64_t> coords;  // inline "coords", row-major [tokens, axes]; empty when not given
  bool names_coords_file = false;
};

// INVALID_ARGUMENT, naming the field: malformed JSON, an unknown field, a value of the wrong type,
// a number that is no finite number or does not fit.
absl::StatusOr<JobSpecDocument> ParseJobSpec(std::string_view json);

// The spec as JSON that ParseJobSpec reads back to an equal spec (coordinates by "coords_file").
std::string FormatJobSpec(const JobSpec& spec);

// "float32" | "bfloat16" | "float16".
std::string_view DataTypeName(DataType dtype);
absl::StatusOr<DataType> ParseDataType(std::string_view name);

}  // namespace hilbert_ring
