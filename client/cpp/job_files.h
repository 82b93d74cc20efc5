// The files of a job: its spec as JSON, its tensors as .npy, checked against each other before
// anything is sent. What the tensors' headers say, the spec may leave out.
//
//   auto job = OpenJob({.spec = "case.json", .q = "q.npy", .k = "k.npy", .v = "v.npy"});
//   job->job.spec;                                       // whole and valid
//   auto out = NpyWriter::Create("out.npy", OutputType(job->job.spec, job->q.type()),
//                                TensorShape(job->job.spec, v1::TENSOR_OUT));
//
// Messages name the file, and the field or axis with its value and what was expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "client/cpp/coordinate_input.h"
#include "client/cpp/job_shape.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/job_spec_json.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// How a job is named: a spec's file, fields that replace those of the file, or both.
struct JobSource {
  std::string spec = "";    // path, "-" for what the process reads from; empty: the fields alone
  std::string fields = "";  // JSON, as ParsePartialJobSpec has a patch; empty: none
  std::string coords = "";  // path, in place of the spec's coords_file; empty: none
  std::string q = "", k = "", v = "";  // paths
};

struct Job {
  JobSpec spec;
  std::optional<CoordinateInput> coordinates;  // where the ordering has them and they are given
  std::string coords_path;                     // of their file; empty: none
  JobShape shape;                              // of the spec, and who said it
};

struct JobFiles {
  Job job;
  NpyFile q, k, v;
};

// The inputs for Attend. The files outlive them.
AttendInputs InputsOf(const JobFiles& files);

// As of NpyFile, of all files of a job.
absl::Status CheckIntact(const JobFiles& files);

enum class CoordinatesUse {
  kRequired,  // a coords_file that is not there is an error
  kOptional,  // their number of axes is enough
};

// Reads a spec, fills in what the headers of q, k and v say, those of them that are named, and
// validates it. A coords_file lies in the spec's folder.
absl::StatusOr<Job> ReadJob(const JobSource& source,
                            CoordinatesUse use = CoordinatesUse::kRequired);

// Of a stream without end: a spec without tokens, which names neither tensors nor coordinates.
// Where it is cut is not known yet: what depends on that is not validated.
absl::StatusOr<JobSpec> ReadStreamSpec(const JobSource& source);

// The same with its tensors, all of which are named.
absl::StatusOr<JobFiles> OpenJob(const JobSource& source);

// [tokens, heads, head_dim] and so on: Q, K, V, OUT or LSE.
std::vector<int64_t> TensorShape(const JobSpec& spec, v1::Tensor tensor);

// Opens a tensor of the shape's type and sizes. OUT and LSE, which are read to be verified, may be
// float64 too.
absl::StatusOr<NpyFile> OpenTensor(const std::string& path, JobShape shape, v1::Tensor tensor);

// The type of an output file; for bfloat16 the one in which q came.
wire::NpyType OutputType(const JobSpec& spec, wire::NpyType q_type);

}  // namespace hilbert_ring::client
