#include "wire/payload.h"

#include <cstring>

#include "wire/checksum.h"

namespace hilbert_ring::wire {

uint32_t Payload::Crc32c() const {
  uint32_t crc = 0;
  for (const std::string_view part : parts_) crc = wire::Crc32c(part, crc);
  return crc;
}

void PayloadReader::Read(void* to, int64_t bytes) {
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const std::string_view part = NextPart(bytes);
    std::memcpy(next, part.data(), part.size());
    next += part.size();
    bytes -= static_cast<int64_t>(part.size());
  }
}

Payload PayloadReader::Next(int64_t bytes) {
  Payload payload;
  while (payload.bytes() < bytes) payload.Append(NextPart(bytes - payload.bytes()));
  return payload;
}

void PayloadReader::Skip(int64_t bytes) {
  while (bytes > 0) bytes -= static_cast<int64_t>(NextPart(bytes).size());
}

std::string_view PayloadReader::NextPart(int64_t most) {
  std::string_view part = parts_[part_].substr(offset_);
  if (static_cast<int64_t>(part.size()) > most) {
    part = part.substr(0, static_cast<size_t>(most));
    offset_ += part.size();
  } else {
    ++part_;
    offset_ = 0;
  }
  return part;
}

}  // namespace hilbert_ring::wire
