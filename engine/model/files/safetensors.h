// Reads the safetensors format: eight bytes with the header's length, a JSON object of names,
// types, shapes and offsets, then the numbers. https://huggingface.co/docs/safetensors
//
//   ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::Open("model.safetensors"));
//   ASSIGN_OR_RETURN(const auto weights, SafetensorsFile::Read(std::move(file)));
//   const SafetensorsEntry* entry = weights.Find("cls_token");   // or null
//   RETURN_IF_ERROR(weights.Widen(*entry, floats));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/files/readable_file.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", "F16", "I64"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes of the file

  int64_t elements() const;
};

// The longest header that is read; 100,000 tensors take less.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{32} << 20;

// Bytes before the first tensor. `begin`: the file's first eight bytes or more. INVALID_ARGUMENT:
// the file is shorter than its header, or the header is too long.
absl::StatusOr<int64_t> SafetensorsHeadBytes(std::span<const std::byte> begin, int64_t file_bytes);

// The tensors of a file, sorted by name. `head` covers all bytes before them. INVALID_ARGUMENT: a
// malformed header, an unknown type, a wrong size, or offsets that overlap or leave gaps.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> head,
                                                               int64_t file_bytes);

// Empty unless the type is F32, BF16 or F16.
std::optional<DataType> FloatTypeOf(const SafetensorsEntry& entry);

// "[768, 1536]".
std::string FormatTensorShape(std::span<const int64_t> shape);

struct SafetensorsHead {
  std::vector<std::byte> bytes;
  std::vector<SafetensorsEntry> entries;  // sorted by name
};

// Immutable; thread-safe.
class SafetensorsFile {
 public:
  // Errors: ReadableFile::Read, ParseSafetensors (naming the path), RESOURCE_EXHAUSTED.
  static absl::StatusOr<SafetensorsFile> Read(ReadableFile file);

  // head: of this version of the file.
  SafetensorsFile(ReadableFile file, std::shared_ptr<const SafetensorsHead> head)
      : file_(std::move(file)), head_(std::move(head)) {}

  const ReadableFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  const std::shared_ptr<const SafetensorsHead>& head() const { return head_; }
  const std::vector<SafetensorsEntry>& entries() const { return head_->entries; }
  const SafetensorsEntry* Find(std::string_view name) const;

  // UNAVAILABLE if the file no longer begins with the header that was read.
  absl::Status CheckHead() const;

  // to: [entry.elements()]. Errors: INVALID_ARGUMENT (not F32, BF16 or F16), ReadableFile::Read.
  absl::Status Widen(const SafetensorsEntry& entry, std::span<float> to) const;

 private:
  ReadableFile file_;
  std::shared_ptr<const SafetensorsHead> head_;  // also of later openings of the version
};

}  // namespace hilbert_ring
