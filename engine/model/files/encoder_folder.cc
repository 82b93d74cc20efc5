#include "engine/model/files/encoder_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/watched_json.h"

namespace hilbert_ring {
namespace {

constexpr size_t kMaxNamed = 10;  // wrong weights in one message
constexpr int kOpenings = 3;      // tries to open a changing folder

absl::Status Changed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, " was changed while it was read"));
}

absl::StatusOr<std::string> ReadConfig(const ReadableFile& file) {
  if (file.bytes() > kMaxConfigBytes) {
    return absl::OutOfRangeError(absl::StrCat(file.path(), " has ", file.bytes(),
                                              " bytes, must have at most ", kMaxConfigBytes));
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  RETURN_IF_ERROR(file.Read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

absl::Status CheckWeights(const EncoderConfig& config, const SafetensorsFile& file) {
  std::vector<std::string> wrong;
  std::set<std::string> known;
  for (const WeightShape& weight : WeightShapes(config)) {
    known.insert(weight.name);
    const SafetensorsEntry* entry = file.Find(weight.name);
    if (entry == nullptr) {
      wrong.push_back(absl::StrCat(weight.name, " is missing"));
    } else if (entry->shape != weight.shape) {
      wrong.push_back(absl::StrCat(weight.name, " is ", FormatTensorShape(entry->shape),
                                   ", must be ", FormatTensorShape(weight.shape)));
    } else if (!FloatTypeOf(*entry)) {
      wrong.push_back(
          absl::StrCat(weight.name, " is of dtype ", entry->dtype, ", must be F32, BF16 or F16"));
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!known.contains(entry.name)) {
      wrong.push_back(absl::StrCat(Quoted(entry.name), " is no weight of this encoder"));
    }
  }
  if (wrong.empty()) return absl::OkStatus();
  const size_t named = std::min(wrong.size(), kMaxNamed);
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": ", absl::StrJoin(wrong.begin(), wrong.begin() + named, "; "),
      named < wrong.size() ? absl::StrCat("; and ", wrong.size() - named, " more") : ""));
}

int64_t WeightBytes(const EncoderConfig& config, DataType products) {
  int64_t bytes = 0;
  for (const WeightShape& weight : WeightShapes(config)) {
    const bool matrix = weight.shape.size() == 2;
    int64_t of_weight = ElementBytes(matrix ? products : DataType::kFloat32);
    for (const int64_t axis : weight.shape) of_weight *= axis;
    bytes += of_weight;
  }
  return bytes;
}

std::chrono::seconds LoadTimeout(const EncoderConfig& config) {
  constexpr int64_t kSlowestDisk = int64_t{16} << 20;  // bytes a second
  return std::chrono::seconds(60 + WeightBytes(config, DataType::kFloat32) / kSlowestDisk);
}

absl::StatusOr<EncoderFolder> EncoderFolder::Open(
    const std::string& path, FileDigests& digests,
    const std::shared_ptr<const EncoderVersion>& known) {
  for (int opening = 1;; ++opening) {
    auto folder = OpenOnce(path, digests, known);
    if (!absl::IsUnavailable(folder.status()) || opening == kOpenings) return folder;
  }
}

absl::StatusOr<EncoderFolder> EncoderFolder::OpenOnce(
    const std::string& path, FileDigests& digests,
    const std::shared_ptr<const EncoderVersion>& known) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the folder ", path));
  const auto closed = absl::MakeCleanup([fd] { close(fd); });
  ASSIGN_OR_RETURN(const ReadableFile config_file, ReadableFile::OpenAt(fd, path, kConfigFile));
  const bool config_settled = digests.Settled(config_file);
  if (known != nullptr && config_file.stamp() == known->config_stamp) {
    ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::OpenAt(fd, path, kWeightsFile));
    if (file.stamp() == known->weights_stamp) {
      return EncoderFolder(path, known, SafetensorsFile(std::move(file), known->weights), true);
    }
  }
  ASSIGN_OR_RETURN(const auto text, ReadConfig(config_file));
  const auto config = ParseEncoderConfig(text);
  if (!config.ok()) {
    return absl::Status(config.status().code(),
                        absl::StrCat(config_file.path(), ": ", config.status().message()));
  }
  ASSIGN_OR_RETURN(ReadableFile weights_file, ReadableFile::OpenAt(fd, path, kWeightsFile));
  ASSIGN_OR_RETURN(SafetensorsFile weights, SafetensorsFile::Read(std::move(weights_file)));
  RETURN_IF_ERROR(CheckWeights(*config, weights));
  const ReadableFile& file = weights.file();
  const bool settled = digests.Settled(file);
  ASSIGN_OR_RETURN(const Digest weights_digest, digests.Of(file));
  std::vector<std::byte> both;
  for (const Digest& digest : {Sha256(std::as_bytes(std::span(text))), weights_digest}) {
    both.insert(both.end(), digest.begin(), digest.end());
  }

  // The parsed bytes are the digested ones, and both files still belong to the folder.
  RETURN_IF_ERROR(weights.CheckHead());
  RETURN_IF_ERROR(file.CheckUnchanged());
  ASSIGN_OR_RETURN(const ReadableFile config_now, ReadableFile::OpenAt(fd, path, kConfigFile));
  ASSIGN_OR_RETURN(const auto text_now, ReadConfig(config_now));
  if (text_now != text) return Changed(config_file.path());
  ASSIGN_OR_RETURN(const ReadableFile weights_now, ReadableFile::OpenAt(fd, path, kWeightsFile));
  if (weights_now.stamp().device != file.stamp().device ||
      weights_now.stamp().inode != file.stamp().inode) {
    return Changed(file.path());
  }
  auto version =
      std::make_shared<const EncoderVersion>(EncoderVersion{.config = *config,
                                                            .config_text = text,
                                                            .weights = weights.head(),
                                                            .weights_digest = weights_digest,
                                                            .digest = HexOf(Sha256(both)),
                                                            .config_settled = config_settled,
                                                            .config_stamp = config_file.stamp(),
                                                            .weights_stamp = file.stamp()});
  return EncoderFolder(path, std::move(version), std::move(weights), settled);
}

absl::StatusOr<std::vector<float>> EncoderFolder::Floats(const std::string& name) const {
  const SafetensorsEntry* entry = weights_.Find(name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(weights_.path(), ": ", name, " is missing"));
  }
  try {
    std::vector<float> floats(static_cast<size_t>(entry->elements()));
    RETURN_IF_ERROR(weights_.Widen(*entry, floats));
    return floats;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(weights_.path(),
                                                     ": the memory does not suffice for ", name,
                                                     " of ", entry->elements(), " numbers"));
  }
}

absl::StatusOr<LayerNorm> EncoderFolder::LoadNorm() const {
  if (config().norm_eps == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": the model has no norm behind pooling (norm_eps 0)"));
  }
  ASSIGN_OR_RETURN(auto weight, Floats("norm.weight"));
  ASSIGN_OR_RETURN(auto bias, Floats("norm.bias"));
  return LayerNorm(std::move(weight), std::move(bias), config().norm_eps);
}

absl::Status EncoderFolder::CheckUnchanged() const {
  const ReadableFile& file = weights_.file();
  RETURN_IF_ERROR(file.CheckUnchanged());
  ASSIGN_OR_RETURN(const FileStamp now, file.StampNow());
  if (settled_ && now == file.stamp()) return absl::OkStatus();
  // The file changed within a step of the file system's clock, or its times were set back.
  ASSIGN_OR_RETURN(const Digest digest, Sha256Of(file));
  return digest == version_->weights_digest ? absl::OkStatus() : Changed(file.path());
}

}  // namespace hilbert_ring
