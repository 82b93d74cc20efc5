// A model's folder: one version of config.json and model.safetensors.
//
//   FileDigests digests;                                      // of the process
//   ASSIGN_OR_RETURN(const EncoderFolder folder, EncoderFolder::Open("models/slide", digests));
//   folder.config(), folder.digest();                         // the model and its version
//   ASSIGN_OR_RETURN(const auto weights, folder.Floats("cls_token"));
//   RETURN_IF_ERROR(folder.CheckUnchanged());          // all was of that version
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/file_digests.h"
#include "engine/model/files/layer_norm.h"
#include "engine/model/files/readable_file.h"
#include "engine/model/files/safetensors.h"

namespace hilbert_ring {

inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kWeightsFile[] = "model.safetensors";

inline constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

// INVALID_ARGUMENT: names the first ten weights that are missing, unknown or of a wrong shape or
// type.
absl::Status CheckWeights(const EncoderConfig& config, const SafetensorsFile& file);

// Memory of the weights: matrices in `products`, others in float32, without a library's padding.
int64_t WeightBytes(const EncoderConfig& config, DataType products);

// The wait for another process's loading: a minute, and the time to read the weights at 16 MiB/s.
std::chrono::seconds LoadTimeout(const EncoderConfig& config);

// All that parsing a version of the folder gives.
struct EncoderVersion {
  EncoderConfig config;
  std::string config_text;
  std::shared_ptr<const SafetensorsHead> weights;
  Digest weights_digest{};
  std::string digest;           // EncoderFolder::digest
  bool config_settled = false;  // FileDigests::Settled, before it was read
  FileStamp config_stamp, weights_stamp;
};

// Keeps the weights open, even if others replace them in the folder. Thread-safe.
class EncoderFolder {
 public:
  // Opens both files of one version and finds all weights. Errors name the file: those of its
  // readers, OUT_OF_RANGE (config.json exceeds kMaxConfigBytes), UNAVAILABLE (the folder keeps
  // changing). known: a version() that is not parsed again if the files have its stamps; or null.
  static absl::StatusOr<EncoderFolder> Open(
      const std::string& path, FileDigests& digests,
      const std::shared_ptr<const EncoderVersion>& known = nullptr);

  const std::string& path() const { return path_; }
  const EncoderConfig& config() const { return version_->config; }
  const std::string& config_text() const { return version_->config_text; }  // config.json

  // 64 hex digits: SHA-256 over the SHA-256s of config.json and model.safetensors, concatenated.
  const std::string& digest() const { return version_->digest; }

  // The version that Open takes; null if a later one may have the same stamps
  // (FileDigests::Settled).
  std::shared_ptr<const EncoderVersion> version() const {
    return settled_ && version_->config_settled ? version_ : nullptr;
  }

  // A weight in float32. Errors: SafetensorsFile::Widen, RESOURCE_EXHAUSTED.
  absl::StatusOr<std::vector<float>> Floats(const std::string& name) const;

  // The norm after pooling. Errors: FAILED_PRECONDITION (the model has no such norm), Floats.
  absl::StatusOr<LayerNorm> LoadNorm() const;

  // OK if everything read since Open is of the digest's version; else UNAVAILABLE.
  absl::Status CheckUnchanged() const;

 private:
  EncoderFolder(std::string path, std::shared_ptr<const EncoderVersion> version,
                SafetensorsFile weights, bool settled)
      : path_(std::move(path)),
        version_(std::move(version)),
        weights_(std::move(weights)),
        settled_(settled) {}

  static absl::StatusOr<EncoderFolder> OpenOnce(const std::string& path, FileDigests& digests,
                                                const std::shared_ptr<const EncoderVersion>& known);

  std::string path_;
  std::shared_ptr<const EncoderVersion> version_;
  SafetensorsFile weights_;
  bool settled_;  // FileDigests::Settled of the weights, before they were read
};

}  // namespace hilbert_ring
