// The messages of a call that a fake service has taken.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "hilbert_ring/v1/attention.pb.h"
#include "wire/checksum.h"

namespace hilbert_ring::client {

struct FakeRecord {
  v1::Open open;
  std::vector<v1::Chunk> chunks;              // without payloads
  std::map<v1::Tensor, std::string> tensors;  // whole
  bool checksums_right = true;
  bool closed_early = false;  // the client closed its side although it can resend

  void Keep(const v1::Chunk& chunk, int64_t tensor_rows) {
    checksums_right &= wire::Crc32c(chunk.payload()) == chunk.crc32c();
    const int64_t row_bytes = std::ssize(chunk.payload()) / chunk.rows();
    std::string& tensor = tensors[chunk.tensor()];
    tensor.resize(static_cast<size_t>(tensor_rows * row_bytes));
    std::memcpy(tensor.data() + chunk.first_row() * row_bytes, chunk.payload().data(),
                chunk.payload().size());
    chunks.push_back(chunk);
    chunks.back().clear_payload();
  }
};

// A chunk of rows from first_token on.
inline v1::OutputChunk FakeOutput(v1::Tensor tensor, int64_t first_token, int64_t rows,
                                  std::string payload) {
  v1::OutputChunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_token(first_token);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
  chunk.set_payload(std::move(payload));
  return chunk;
}

}  // namespace hilbert_ring::client
