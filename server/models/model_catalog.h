// The models of a folder. Each model is a folder in it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/model/files/encoder_folder.h"
#include "engine/model/files/file_digests.h"

namespace hilbert_ring::server {

// INVALID_ARGUMENT (INVALID_SPEC) unless the name is 1 to 128 letters, digits, '.', '_' and '-',
// and does not begin with '.'.
absl::Status CheckModelName(std::string_view name);

// Thread-safe.
class ModelCatalog {
 public:
  static constexpr size_t kMostModels = 256;  // the first by name

  explicit ModelCatalog(std::string folder) : folder_(std::move(folder)) {}

  // Opens the present version. Reads new weights whole, about a second a gigabyte. NOT_FOUND
  // (MODEL_NOT_FOUND), FAILED_PRECONDITION (MODEL_UNUSABLE) if the folder is wrong, UNAVAILABLE
  // (MODEL_UNUSABLE) while it changes.
  absl::StatusOr<EncoderFolder> Open(const std::string& name);

  // Opens the version with this digest; empty: any. FAILED_PRECONDITION (MODEL_CHANGED).
  absl::StatusOr<EncoderFolder> Open(const std::string& name, const std::string& digest);

  struct Entry {
    std::string name;
    absl::StatusOr<EncoderFolder> model;
  };
  struct Listing {
    std::vector<Entry> entries;         // by name
    bool cut = false;                   // models were ignored
    std::vector<std::string> misnamed;  // folders with a config.json and an invalid name
  };
  // Concurrent calls wait, so that new weights are read once.
  Listing List();

  void Stop() { digests_.Stop(); }  // ends reads of weights

 private:
  std::vector<std::string> Names(std::vector<std::string>& misnamed) const;

  const std::string folder_;  // empty: no models
  FileDigests digests_;
  Mutex listing_;
  Mutex versions_mutex_;
  std::map<std::string, std::shared_ptr<const EncoderVersion>> versions_  // as last opened, by name
      ABSL_GUARDED_BY(versions_mutex_);
};

}  // namespace hilbert_ring::server
