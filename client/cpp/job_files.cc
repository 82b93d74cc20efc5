#include "client/cpp/job_files.h"

#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "client/cpp/text_file.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/bias_coordinates.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

// Enough for inline coordinates of ten million tokens; bounds input without end.
constexpr size_t kMaxSpecBytes = size_t{256} << 20;

absl::StatusOr<std::string> ReadSpec(const std::string& path) {
  return ReadText(path, {.bytes = kMaxSpecBytes,
                         .words = "the limit of a job spec; coordinates may come by coords_file"});
}

constexpr v1::Tensor kInputs[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};

const std::string& PathOf(const JobSource& source, v1::Tensor tensor) {
  return tensor == v1::TENSOR_Q ? source.q : tensor == v1::TENSOR_K ? source.k : source.v;
}

absl::Status AtSpec(const JobSource& source, const absl::Status& status) {
  if (source.spec.empty()) return status;
  return AtPath(TextName(source.spec), status);
}

absl::StatusOr<JobSpecDocument> ReadDocument(const JobSource& source) {
  std::string text = "{}";
  if (!source.spec.empty()) {
    ASSIGN_OR_RETURN(text, ReadSpec(source.spec));
  }
  absl::StatusOr<JobSpecDocument> document =
      ParsePartialJobSpec(text, source.fields.empty() ? "{}" : source.fields);
  return document.ok() ? std::move(document) : AtSpec(source, document.status());
}

// coords_file of a spec is relative to the spec's folder.
std::string CoordinatesPath(const JobSpecDocument& document, const JobSource& source) {
  if (!source.coords.empty()) return source.coords;
  if (!document.coords_file) return "";
  return std::filesystem::path(source.spec).parent_path() / *document.coords_file;
}

absl::StatusOr<std::optional<CoordinateInput>> OpenCoordinates(const std::string& path,
                                                               const JobSpecDocument& document,
                                                               const JobSource& source,
                                                               CoordinatesUse use) {
  absl::StatusOr<NpyFile> file = NpyFile::Open(path);
  if (!file.ok() && source.coords.empty()) {
    if (use == CoordinatesUse::kOptional && absl::IsNotFound(file.status())) return std::nullopt;
    return AtSpec(source,
                  absl::Status(file.status().code(),
                               absl::StrCat("ordering.coords_file: ", file.status().message(),
                                            "; --coords gives another file")));
  }
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(CoordinateInput coordinates,
                   CoordinateInput::FromFile(*std::move(file), KeyTokens(document.spec)));
  if (document.coords_axes && *document.coords_axes != coordinates.axes()) {
    return AtPath(path, absl::InvalidArgumentError(
                            absl::StrCat("has ", coordinates.axes(), " axes, must have ",
                                         *document.coords_axes, " (ordering.coords_axes)")));
  }
  return coordinates;
}

absl::StatusOr<std::optional<CoordinateInput>> FindCoordinates(const JobSpecDocument& document,
                                                               const std::string& path,
                                                               const JobSource& source,
                                                               CoordinatesUse use) {
  const std::optional<Ordering>& ordering = document.spec.ordering;
  if (!source.coords.empty() && (!ordering || ordering->coordinate_axes == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.coords,
                     ": the job's ordering has no coordinates; announce them with "
                     "\"coords_file\""));
  }
  if (!source.coords.empty() && !document.coords.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.coords, ": the spec has ordering.coords too; give only one"));
  }
  if (!path.empty()) return OpenCoordinates(path, document, source, use);
  if (document.coords.empty()) return std::nullopt;
  absl::StatusOr<CoordinateInput> coordinates = CoordinateInput::FromRows(
      document.coords, KeyTokens(document.spec), ordering->coordinate_axes);
  if (!coordinates.ok()) return AtSpec(source, coordinates.status());
  return *std::move(coordinates);
}

// Float32 [tokens, 2 or 3]. The spec gets their number of axes.
absl::StatusOr<std::optional<NpyFile>> OpenBiasCoordinates(const JobSource& source,
                                                           CoordinatesUse use,
                                                           JobSpecDocument& document) {
  const std::string& path = source.bias_coords;
  const bool measures = BiasAxes(document.spec) > 0;
  if (path.empty()) {
    if (!measures || use == CoordinatesUse::kOptional) return std::nullopt;
    return absl::InvalidArgumentError(
        "bias_coords are missing: alibi.distance is coords (--bias-coords)");
  }
  if (!measures) {
    return AtPath(path, absl::InvalidArgumentError("alibi.distance is tokens, must be coords"));
  }
  ASSIGN_OR_RETURN(NpyFile file, NpyFile::Open(path));
  const std::vector<int64_t>& shape = file.shape();
  const int64_t tokens = KeyTokens(document.spec);
  const bool right_axes = shape.size() == 2 && (shape[1] == 2 || shape[1] == 3) &&
                          document.bias_axes.value_or(shape[1]) == shape[1];
  if (!right_axes || shape[0] != tokens || file.type() != wire::NpyType::kFloat32 ||
      file.fortran_order()) {
    const std::string axes = document.bias_axes ? absl::StrCat(*document.bias_axes) : "2 or 3";
    return AtPath(
        path, absl::InvalidArgumentError(absl::StrCat(
                  "bias_coords are ", wire::NpyTypeName(file.type()), " ", wire::FormatShape(shape),
                  file.fortran_order() ? " in Fortran order" : "", ", must be float32 (", tokens,
                  ", ", axes, ") in C order")));
  }
  const std::span<const float> values(reinterpret_cast<const float*>(file.data()),
                                      static_cast<size_t>(shape[0] * shape[1]));
  const int file_axes = static_cast<int>(shape[1]);
  if (absl::Status range = CheckBiasCoordinates(values, file_axes, 0); !range.ok()) {
    return AtPath(path, range);
  }
  document.spec.alibi->coordinate_axes = file_axes;
  return file;
}

absl::Status CheckKnown(const SpecShape& known) {
  const char* missing = !known.tokens     ? "tokens"
                        : !known.heads    ? "heads"
                        : !known.head_dim ? "head_dim"
                                          : nullptr;
  if (missing == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(missing, " is required: neither the job nor a file of q, k and v has it"));
}

struct NamedFiles {
  Job job;
  std::map<v1::Tensor, NpyFile> tensors;
};

absl::StatusOr<std::map<v1::Tensor, NpyFile>> OpenNamed(const JobSource& source, JobShape& shape) {
  std::map<v1::Tensor, NpyFile> files;
  for (const v1::Tensor tensor : kInputs) {
    if (PathOf(source, tensor).empty()) continue;
    ASSIGN_OR_RETURN(NpyFile file, NpyFile::Open(PathOf(source, tensor)));
    RETURN_IF_ERROR(shape.LearnType(file, tensor));
    files.emplace(tensor, std::move(file));
  }
  for (const auto& [tensor, file] : files) {
    RETURN_IF_ERROR(shape.Take(file, tensor));
  }
  return files;
}

absl::StatusOr<NamedFiles> ReadFiles(const JobSource& source, CoordinatesUse use) {
  ASSIGN_OR_RETURN(JobSpecDocument document, ReadDocument(source));
  // A document that counts its queries alone has as many keys.
  if (!document.given.key_tokens) document.given.key_tokens = document.given.tokens;
  JobShape shape(document.given, source.spec.empty() ? "the command line" : "the spec");
  ASSIGN_OR_RETURN(auto tensors, OpenNamed(source, shape));
  JobSpec& spec = document.spec;
  if (absl::Status s = CheckKnown(shape.known()); !s.ok()) return AtSpec(source, s);
  FillIn(shape.known(), spec);
  if (absl::Status valid = Validate(spec); !valid.ok()) {
    return AtSpec(source,
                  absl::Status(valid.code(), absl::StrCat(valid.message(), shape.ToldByFiles())));
  }
  const std::string coords_path = CoordinatesPath(document, source);
  ASSIGN_OR_RETURN(std::optional<CoordinateInput> coordinates,
                   FindCoordinates(document, coords_path, source, use));
  if (coordinates) spec.ordering->coordinate_axes = coordinates->axes();
  ASSIGN_OR_RETURN(std::optional<NpyFile> bias_coordinates,
                   OpenBiasCoordinates(source, use, document));
  return NamedFiles{{std::move(spec), std::move(coordinates), coords_path,
                     std::move(bias_coordinates), std::move(shape)},
                    std::move(tensors)};
}

}  // namespace

absl::StatusOr<Job> ReadJob(const JobSource& source, CoordinatesUse use) {
  ASSIGN_OR_RETURN(NamedFiles files, ReadFiles(source, use));
  return std::move(files.job);
}

absl::StatusOr<JobSpec> ReadStreamSpec(const JobSource& source) {
  ASSIGN_OR_RETURN(JobSpecDocument document, ReadDocument(source));
  const auto wrong = [&source](const std::string& message) {
    return AtSpec(source, absl::InvalidArgumentError(message));
  };
  const SpecShape& given = document.given;
  if (given.tokens) {
    return wrong(absl::StrCat("tokens is ", *given.tokens,
                              ", but a stream without end has no count of tokens: omit it"));
  }
  if (!given.heads) return wrong("heads is required");
  if (!given.head_dim) return wrong("head_dim is required");
  if (document.coords_file || !document.coords.empty() || !source.coords.empty()) {
    return wrong("ordering.coords: a stream without end takes no coordinates; give a window");
  }
  if (BiasAxes(document.spec) > 0 || !source.bias_coords.empty()) {
    return wrong(
        "alibi.distance is coords, must be tokens in a stream without end: it takes no "
        "coordinates");
  }
  FillIn(given, document.spec);
  document.spec.tokens = 0;
  return std::move(document.spec);
}

absl::StatusOr<JobFiles> OpenJob(const JobSource& source) {
  for (const v1::Tensor tensor : kInputs) {
    if (!PathOf(source, tensor).empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(wire::TensorName(tensor), ": no file is given"));
  }
  ASSIGN_OR_RETURN(NamedFiles files, ReadFiles(source, CoordinatesUse::kRequired));
  const auto take = [&files](v1::Tensor tensor) { return std::move(files.tensors.at(tensor)); };
  return JobFiles{std::move(files.job), take(v1::TENSOR_Q), take(v1::TENSOR_K), take(v1::TENSOR_V)};
}

AttendInputs InputsOf(const JobFiles& files) {
  AttendInputs inputs{
      .spec = files.job.spec, .q = files.q.span(), .k = files.k.span(), .v = files.v.span()};
  if (files.job.coordinates) {
    inputs.coordinates = [&files](int64_t first_row, std::span<uint32_t> values) {
      files.job.coordinates->Read(first_row, values);
    };
  }
  if (files.job.bias_coordinates) {
    const NpyFile& file = *files.job.bias_coordinates;
    inputs.bias_coordinates = {reinterpret_cast<const float*>(file.data()),
                               static_cast<size_t>(file.bytes()) / sizeof(float)};
  }
  return inputs;
}

absl::Status CheckIntact(const JobFiles& files) {
  for (const NpyFile* file : {&files.q, &files.k, &files.v}) {
    RETURN_IF_ERROR(file->CheckIntact());
  }
  if (files.job.bias_coordinates) RETURN_IF_ERROR(files.job.bias_coordinates->CheckIntact());
  const std::optional<CoordinateInput>& coordinates = files.job.coordinates;
  return coordinates ? coordinates->CheckIntact() : absl::OkStatus();
}

absl::StatusOr<NpyFile> OpenTensor(const std::string& path, JobShape shape, v1::Tensor tensor) {
  ASSIGN_OR_RETURN(NpyFile file, NpyFile::Open(path));
  RETURN_IF_ERROR(shape.Take(file, tensor));
  return file;
}

wire::NpyType OutputType(const JobSpec& spec, wire::NpyType q_type) {
  if (spec.dtype == DataType::kFloat32) return wire::NpyType::kFloat32;
  if (spec.dtype == DataType::kFloat16) return wire::NpyType::kFloat16;
  return wire::MayHold(q_type, DataType::kBFloat16) ? q_type : wire::NpyType::kRaw16;
}

}  // namespace hilbert_ring::client
