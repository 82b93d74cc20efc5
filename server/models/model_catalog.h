// The models of a folder: each is a folder in it, whose name is the model's.
//
//   ModelCatalog catalog("/srv/models");
//   ASSIGN_OR_RETURN(const EncoderFolder model, catalog.Open("slide_encoder"));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/model/files/encoder_folder.h"
#include "engine/model/files/file_digests.h"

namespace hilbert_ring::server {

// OK, or INVALID_ARGUMENT (INVALID_SPEC): a name is 1 to 128 letters, digits, '.', '_' and '-', and
// does not begin with '.'.
absl::Status CheckModelName(std::string_view name);

// Thread-safe.
class ModelCatalog {
 public:
  // Of so many models, the first by name, the others are not seen.
  static constexpr size_t kMostModels = 256;

  // folder: empty for a process that has no models.
  explicit ModelCatalog(std::string folder) : folder_(std::move(folder)) {}

  // The model as it is now. Its weights are read whole where they are new, which takes a second a
  // gigabyte or so. NOT_FOUND (MODEL_NOT_FOUND), FAILED_PRECONDITION (MODEL_UNUSABLE): there is a
  // folder of that name, and what is wrong with it; UNAVAILABLE (MODEL_UNUSABLE) while it changes.
  absl::StatusOr<EncoderFolder> Open(const std::string& name);

  // As Open, of the version that is meant; empty: any. FAILED_PRECONDITION (MODEL_CHANGED).
  absl::StatusOr<EncoderFolder> Open(const std::string& name, const std::string& digest);

  struct Entry {
    std::string name;
    absl::StatusOr<EncoderFolder> model;
  };
  struct Listing {
    std::vector<Entry> entries;         // by name
    bool cut = false;                   // there are more
    std::vector<std::string> misnamed;  // folders with a config.json whose name is no model's
  };
  // One at a time: the next needs not read what this one has.
  Listing List();

  // For a process that ends: weights that are being read are not read to their ends.
  void Stop() { digests_.Stop(); }

 private:
  std::vector<std::string> Names(std::vector<std::string>& misnamed) const;

  const std::string folder_;
  FileDigests digests_;
  Mutex listing_;
};

}  // namespace hilbert_ring::server
