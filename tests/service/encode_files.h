// Files of encoders' jobs beneath a data root, as encode_call.h has their rows.
//
//   const EncodeFolder folder(test_folder / "root");
//   const auto result = EncodeRaw(channel, spec, inputs, {.files = folder.Write(spec, inputs)});
//   folder.Read(v1::TENSOR_STATES);
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
  // Makes the root.
  explicit EncodeFolder(std::string root);

  const std::string& root() const { return root_; }
  std::string Argument() const { return "--data-root=" + root_; }

  // Writes the inputs, and names all that a job of this spec has in files. The outputs of a job
  // before are removed.
  std::vector<v1::TensorFile> Write(const v1::EncodeSpec& spec, const EncodeInputs& inputs) const;

  std::string PathOf(v1::Tensor tensor) const;

  // An output's numbers; header: of its file, if wanted.
  std::vector<float> Read(v1::Tensor tensor, wire::NpyHeader* header = nullptr) const;

  // Names of all that lies in the root, but for the service's mark; sorted.
  std::vector<std::string> Names() const;

 private:
  const std::string root_;
};

// Workers look for the mark when they are told of it: until so many see it. False: not in time.
bool AwaitDataRoot(const Cluster& cluster, int workers);

}  // namespace hilbert_ring::testing
