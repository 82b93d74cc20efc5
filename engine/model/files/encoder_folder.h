// A model's folder: config.json and model.safetensors, as they were when it was opened.
//
//   FileDigests digests;                                      // of the process
//   ASSIGN_OR_RETURN(const EncoderFolder folder, EncoderFolder::Open("models/slide", digests));
//   folder.config(), folder.digest();                         // which model and version it is
//   ASSIGN_OR_RETURN(const auto weights, folder.Floats("cls_token"));
//   RETURN_IF_ERROR(folder.CheckUnchanged());          // all was of that version
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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

// Files of a model's folder.
inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kWeightsFile[] = "model.safetensors";

inline constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

// OK, or INVALID_ARGUMENT: names every weight that is missing, has another shape than the config
// says or is of a type that no encoder has (the first ten), and those that belong to no part of it.
absl::Status CheckWeights(const EncoderConfig& config, const SafetensorsFile& file);

// Memory of the weights in a model that is loaded: of matrices in `products`, float32 or bfloat16,
// and of all others in float32. A library's layout may fill matrices whose sides are no multiples
// of 64 up to them.
int64_t WeightBytes(const EncoderConfig& config, DataType products);

// For which somebody waits until another process has loaded a model's weights: a minute, and what
// reading them takes from a slow disk (16 MiB a second).
std::chrono::seconds LoadTimeout(const EncoderConfig& config);

// Both files stay open, and as they were where others take their names. Any number of threads may
// read it.
class EncoderFolder {
 public:
  // Both files of one version of the folder, whose weights have all been found. Messages name the
  // file: errors of ReadableFile::Open, ParseEncoderConfig, SafetensorsFile::Read and CheckWeights;
  // OUT_OF_RANGE: config.json is longer than kMaxConfigBytes; UNAVAILABLE: the folder changes all
  // the time.
  static absl::StatusOr<EncoderFolder> Open(const std::string& path, FileDigests& digests);

  const std::string& path() const { return path_; }
  const EncoderConfig& config() const { return config_; }
  const std::string& config_text() const { return config_text_; }  // config.json

  // Of config and weights: SHA-256 of the SHA-256s of config.json and model.safetensors, one behind
  // the other. 64 digits.
  const std::string& digest() const { return digest_; }

  // Numbers of a weight that WeightShapes names, in float32. Errors of SafetensorsFile::Widen,
  // RESOURCE_EXHAUSTED without memory.
  absl::StatusOr<std::vector<float>> Floats(const std::string& name) const;

  // The norm behind pooling. FAILED_PRECONDITION: the model has none; else as of Floats.
  absl::StatusOr<LayerNorm> LoadNorm() const;

  // OK: what has been read since Open is of the digest's version. UNAVAILABLE: it may not be.
  absl::Status CheckUnchanged() const;

 private:
  EncoderFolder(std::string path, const EncoderConfig& config, std::string config_text,
                SafetensorsFile weights)
      : path_(std::move(path)),
        config_(config),
        config_text_(std::move(config_text)),
        weights_(std::move(weights)) {}

  static absl::StatusOr<EncoderFolder> OpenOnce(const std::string& path, FileDigests& digests);

  std::string path_;
  EncoderConfig config_;
  std::string config_text_;
  SafetensorsFile weights_;
  Digest weights_digest_{};
  std::string digest_;
  bool settled_ = false;  // as FileDigests::Settled of the weights, before they were read
};

}  // namespace hilbert_ring
