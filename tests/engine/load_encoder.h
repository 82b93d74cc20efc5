// Loads a model for tests from its folder.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/return_if_error.h"
#include "engine/model/encoder_model.h"
#include "tests/engine/encoder_device.h"

namespace hilbert_ring::testing {

inline absl::StatusOr<std::shared_ptr<const EncoderModel>> LoadEncoder(
    const std::string& folder, EncoderModelOptions options = {}) {
  FileDigests digests;
  ASSIGN_OR_RETURN(const EncoderFolder opened, EncoderFolder::Open(folder, digests));
  if (options.device == nullptr) options.device = ModelDevice();
  return EncoderModel::Load(opened, options);
}

}  // namespace hilbert_ring::testing
