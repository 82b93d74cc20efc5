#include "wire/payload.h"

#include <algorithm>
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
  for (auto left = static_cast<size_t>(bytes); left > 0;) {
    const std::string_view part = parts_[part_];
    const size_t count = std::min(left, part.size() - offset_);
    std::memcpy(next, part.data() + offset_, count);
    next += count;
    left -= count;
    offset_ += count;
    if (offset_ == part.size()) {
      ++part_;
      offset_ = 0;
    }
  }
}

}  // namespace hilbert_ring::wire
