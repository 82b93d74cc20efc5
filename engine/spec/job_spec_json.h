// Job specs as JSON, with the field names of tests/golden/*/case.json.
//
//   {"tokens": 4096, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64,
//    "dtype": "float32",
//    "segments": [1024, 4096], "dilations": [1, 2], "mixing": "head_groups", "causal": false,
//    "scale": null, "tail": "mask", "average_groups": true, "sequence_lengths": null,
//    "ordering": {"curve": "hilbert", "scope": "qkv", "window": 0, "grid": [64, 64]}}
//
// tokens, heads, head_dim, segments and dilations are required. kv_heads defaults to heads,
// value_dim to head_dim, dtype to "float32", the rest to the values above; null means the default.
// In "ordering", "coords_file" (the name is not opened here; two axes unless "coords_axes" says 3,
// or the file's shape does) or "coords" (a list of rows) announces coordinates, (x, y) or
// (x, y, z).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// The fields that the files of a job's tensors say too. Absent: not given.
struct SpecShape {
  std::optional<int64_t> tokens, heads, kv_heads, head_dim, value_dim;
  std::optional<DataType> dtype;
};

struct JobSpecDocument {
  JobSpec spec;                            // not yet validated as a whole: call Validate
  SpecShape given;                         // of the fields of `spec`; the others are the defaults
  std::vector<int64_t> coords;             // inline "coords", row-major [tokens, axes]; else empty
  std::optional<std::string> coords_file;  // where given
  std::optional<int> coords_axes;          // where given
};

// INVALID_ARGUMENT, naming the field: malformed JSON, an unknown field (with the nearest known
// one), a value of the wrong type, a number that is no finite number or does not fit.
absl::StatusOr<JobSpecDocument> ParseJobSpec(std::string_view json);

// Fields of a spec that replace those of a document, as JSON (a merge patch, RFC 7386): null takes
// a field away. An ordering that says where tokens lie (window, grid or coordinates) replaces how
// the document says it. INVALID_ARGUMENT: an ordering without curve for a document without
// ordering.
//
// The fields of SpecShape may be left out: they are 0 then, dtype float32. Errors of ParseJobSpec
// otherwise.
absl::StatusOr<JobSpecDocument> ParsePartialJobSpec(std::string_view json, std::string_view patch);

// The fields of a shape, or their defaults where they are absent.
void FillIn(const SpecShape& shape, JobSpec& spec);

// The spec as JSON that ParseJobSpec reads back to an equal spec (coordinates by "coords_file").
std::string FormatJobSpec(const JobSpec& spec);

// "float32" | "bfloat16" | "float16".
std::string_view DataTypeName(DataType dtype);
absl::StatusOr<DataType> ParseDataType(std::string_view name);

}  // namespace hilbert_ring
