// The files of a job: its spec as JSON, its tensors as .npy, checked against each other before
// anything is sent.
//
//   auto job = ReadJob("case.json", "coords.npy");       // the spec is valid now
//   auto q = OpenTensor("q.npy", job->spec, v1::TENSOR_Q);
//   auto out = NpyWriter::Create("out.npy", OutputType(job->spec, q->type()),
//                                TensorShape(job->spec, v1::TENSOR_OUT));
//
// Messages name the file, and the field or axis with its value and what was expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/coordinates.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/job_spec_json.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct Job {
  JobSpec spec;
  std::optional<Coordinates>
      coordinates;  // when the ordering has coordinate axes and they are given
};

enum class CoordinatesUse {
  kRequired,  // a spec with coordinates and neither a file nor inline rows is an error
  kOptional,  // their number of axes is enough
};

// Reads and validates a spec. coords_path: empty, or the file that the spec's coords_file stands
// for.
absl::StatusOr<Job> ReadJob(const std::string& spec_path, const std::string& coords_path,
                            CoordinatesUse use = CoordinatesUse::kRequired);

// [tokens, heads, head_dim] and so on: Q, K, V, OUT or LSE.
std::vector<int64_t> TensorShape(const JobSpec& spec, v1::Tensor tensor);

// Opens Q, K or V of the spec's dtype and shape; bfloat16 as any 16-bit integers or raw 16-bit. OUT
// and LSE, which are read to be verified, may be float64 too.
absl::StatusOr<NpyFile> OpenTensor(const std::string& path, const JobSpec& spec, v1::Tensor tensor);

// The type of an output file; for bfloat16 the one in which q came.
NpyType OutputType(const JobSpec& spec, NpyType q_type);

}  // namespace hilbert_ring::client
