// Small jobs as clients send them.
#pragma once

#include <string>

#include "hilbert_ring/v1/many.pb.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {

// With all rows, which are all `byte`.
inline v1::SmallJob SmallJobOf(const JobSpec& spec, char byte = 0) {
  v1::SmallJob job;
  *job.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    v1::Chunk& chunk = *job.add_rows();
    chunk.set_tensor(tensor);
    chunk.set_rows(spec.tokens);
    chunk.set_payload(std::string(spec.tokens * wire::TensorRowBytes(spec, tensor), byte));
    chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  }
  return job;
}

}  // namespace hilbert_ring::testing
