// A payload of a message in the transport's buffers, in one or more parts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace hilbert_ring::wire {

// Does not own its bytes.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::string_view whole) { Append(whole); }

  void Append(std::string_view part) {
    if (part.empty()) return;
    parts_.push_back(part);
    bytes_ += static_cast<int64_t>(part.size());
  }

  int64_t bytes() const { return bytes_; }
  const std::vector<std::string_view>& parts() const { return parts_; }
  uint32_t Crc32c() const;

 private:
  std::vector<std::string_view> parts_;
  int64_t bytes_ = 0;
};

class PayloadReader {
 public:
  explicit PayloadReader(const Payload& payload) : parts_(payload.parts()) {}

  // Returns the next `bytes`, which must exist: Read copies them, Next refers to them.
  void Read(void* to, int64_t bytes);
  Payload Next(int64_t bytes);
  void Skip(int64_t bytes);

 private:
  std::string_view NextPart(int64_t most);

  const std::vector<std::string_view>& parts_;
  size_t part_ = 0;
  size_t offset_ = 0;
};

}  // namespace hilbert_ring::wire
