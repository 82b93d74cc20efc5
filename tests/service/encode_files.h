// Files of encoders' jobs beneath a data root; encode_call.h sends rows instead.
//
//   const EncodeFolder folder(test_folder / "root");
//   const auto result = EncodeRaw(channel, spec, inputs, {.files = folder.Write(spec, inputs)});
#pragma once

#include <string>
#include <vector>

#include "hilbert_ring/v1/attention.pb.h"
#include "tests/service/encode_call.h"
#include "tests/support/cluster.h"
#include "wire/npy_header.h"

namespace hilbert_ring::testing {

class EncodeFolder {
 public:
  explicit EncodeFolder(std::string root);  // makes the root

  const std::string& root() const { return root_; }
  std::string Argument() const { return "--data-root=" + root_; }

  // Writes the inputs, removes earlier outputs, and lists all files of a job of this spec.
  std::vector<v1::TensorFile> Write(const v1::EncodeSpec& spec, const EncodeInputs& inputs) const;

  std::string PathOf(v1::Tensor tensor) const;

  // Returns an output's numbers, and its file's header on request.
  std::vector<float> Read(v1::Tensor tensor, wire::NpyHeader* header = nullptr) const;

  // Sorted names of all files in the root except the service's mark.
  std::vector<std::string> Names() const;

 private:
  const std::string root_;
};

// Waits until so many workers see the mark; false at the limit.
bool AwaitDataRoot(const Cluster& cluster, int workers);

}  // namespace hilbert_ring::testing
