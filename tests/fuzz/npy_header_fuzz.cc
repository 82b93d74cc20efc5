// A .npy header gives an error that names the wrong field, or a header that fits its file and
// survives writing and reading.
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"
#include "wire/npy_header.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr size_t kMaxMessage = 2048;  // bytes of an error

}  // namespace

void NpyHeader(Bytes input) {
  const std::string_view file(reinterpret_cast<const char*>(input.data()), input.size());
  const auto header = wire::ParseNpyHeader(file);
  if (!header.ok()) {
    Require(absl::IsInvalidArgument(header.status()), "a parse error is INVALID_ARGUMENT");
    Require(header.status().message().size() <= kMaxMessage,
            "a parse error has a message of bounded length");
    return;
  }
  Require(header->data_offset > 0 && header->data_offset <= static_cast<int64_t>(input.size()),
          "data begin behind the header");
  __int128 bytes = wire::NpyItemBytes(header->type);
  for (const int64_t axis : header->shape) {
    Require(axis >= 0, "no axis is negative");
    bytes *= axis;
  }
  Require(bytes == header->data_bytes, "data have the bytes of their shape");
  Require(header->data_bytes <= INT64_MAX - header->data_offset, "the end of the data is a number");
  // The written header may be longer: the end of the data then overflows.
  if (header->data_bytes > INT64_MAX / 2) return;
  const std::string written = wire::FormatNpyHeader(header->type, header->shape);
  const auto again = wire::ParseNpyHeader(written);
  Require(again.ok() && again->type == header->type && again->shape == header->shape,
          "a header that is written and read is the same");
  Require(again->data_offset == static_cast<int64_t>(written.size()) && written.size() % 64 == 0,
          "data are aligned");
}

}  // namespace hilbert_ring::fuzz
