// The files of a job: its spec as JSON and its tensors as .npy, checked against each other before
// anything is sent. The spec may omit facts that the tensors' headers have.
//
//   auto job = OpenJob({.spec = "case.json", .q = "q.npy", .k = "k.npy", .v = "v.npy"});
//   job->job.spec;                                       // whole and valid
//   auto out = NpyWriter::Create("out.npy", OutputType(job->job.spec, job->q.type()),
//                                TensorShape(job->job.spec, v1::TENSOR_OUT));
//
// Messages have the file, the field or axis, its value and the expected value.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "client/cpp/coordinate_input.h"
#include "client/cpp/job_shape.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/job_spec_json.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct JobSource {
  std::string spec = "";         // path, "-": stdin; empty: only the fields
  std::string fields = "";       // JSON, a patch for ParsePartialJobSpec; empty: none
  std::string coords = "";       // path, instead of the spec's coords_file; empty: none
  std::string bias_coords = "";  // path; empty: none
  std::string q = "", k = "", v = "";
};

struct Job {
  JobSpec spec;
  std::optional<CoordinateInput> coordinates;  // if the ordering needs them and they are given
  std::string coords_path;                     // of their file; empty: none
  std::optional<NpyFile> bias_coordinates;     // if biases measure them and they are given
  JobShape shape;                              // of the spec, and the sources of its values
};

struct JobFiles {
  Job job;
  NpyFile q, k, v;
};

// Returns the inputs for Attend. The files must outlive them.
AttendInputs InputsOf(const JobFiles& files);

absl::Status CheckIntact(const JobFiles& files);

enum class CoordinatesUse {
  kRequired,  // missing coordinates are an error
  kOptional,  // missing coordinates are allowed, if the number of axes is known
};

// Reads a spec, fills in facts from the headers of given q, k and v, and validates it. A relative
// coords_file is relative to the spec's folder.
absl::StatusOr<Job> ReadJob(const JobSource& source,
                            CoordinatesUse use = CoordinatesUse::kRequired);

// Reads the spec of a stream without end, and validates it independently of the epoch's tokens.
absl::StatusOr<JobSpec> ReadStreamSpec(const JobSource& source);

absl::StatusOr<JobFiles> OpenJob(const JobSource& source);

// Opens a tensor of the shape's type and sizes. OUT and LSE, which verify reads, may also be
// float64.
absl::StatusOr<NpyFile> OpenTensor(const std::string& path, JobShape shape, v1::Tensor tensor);

// Returns the type of an output file. A bfloat16 output has q's type in its file.
wire::NpyType OutputType(const JobSpec& spec, wire::NpyType q_type);

}  // namespace hilbert_ring::client
