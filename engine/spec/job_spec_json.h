// Job specs as JSON, with the field names of tests/golden/*/case.json.
//
//   {"tokens": 4096, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64,
//    "dtype": "float32",
//    "segments": [1024, 4096], "dilations": [1, 2], "mixing": "head_groups", "causal": false,
//    "scale": null, "tail": "mask", "average_groups": true, "sequence_lengths": null,
//    "ordering": {"curve": "hilbert", "scope": "qkv", "window": 0, "grid": [64, 64]},
//    "window": null, "softcap": null, "alibi": null, "sinks": null}
//
// tokens, heads, head_dim, segments and dilations are required. kv_heads defaults to heads,
// value_dim to head_dim, dtype to "float32", the rest to the values above; null means the default.
// "window" is [left, right], each an integer or null; "alibi" is {"slopes": [...], "distance":
// "tokens"}, or "coords" with "axes" of 2 (default) or 3; "slopes" and "sinks" have a number for
// each head.
//
// "coords" (a list of rows) or "coords_file" in "ordering" announces coordinates, (x, y) or
// (x, y, z). This reader does not open the file; it assumes two axes unless "coords_axes" is 3.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// The fields that the files of a job's tensors define too. Empty: not given.
struct SpecShape {
  std::optional<int64_t> tokens, key_tokens, heads, kv_heads, head_dim, value_dim;
  std::optional<DataType> dtype;
};

struct JobSpecDocument {
  JobSpec spec;                 // not yet checked by Validate
  SpecShape given;              // the document's; `spec` also has defaults
  std::vector<int64_t> coords;  // inline "coords", row-major [tokens, axes]; else empty
  std::optional<std::string> coords_file;
  std::optional<int> coords_axes, bias_axes;
};

// Errors: INVALID_ARGUMENT, naming the field.
absl::StatusOr<JobSpecDocument> ParseJobSpec(std::string_view json);

// Applies a JSON merge patch (RFC 7386): null removes a field; an ordering with window, grid or
// coordinates replaces the document's. SpecShape's fields are optional (0, float32). Errors:
// ParseJobSpec; INVALID_ARGUMENT (an ordering without curve for a document without ordering).
absl::StatusOr<JobSpecDocument> ParsePartialJobSpec(std::string_view json, std::string_view patch);

void FillIn(const SpecShape& shape, JobSpec& spec);

// JSON that ParseJobSpec reads back to an equal spec (coordinates by "coords_file").
std::string FormatJobSpec(const JobSpec& spec);

std::string_view DataTypeName(DataType dtype);
absl::StatusOr<DataType> ParseDataType(std::string_view name);

}  // namespace hilbert_ring
