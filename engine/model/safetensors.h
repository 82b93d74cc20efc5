// Weights as the safetensors format keeps them: eight bytes with the header's length, a JSON object
// of names, types, shapes and places, and then the numbers.
// https://huggingface.co/docs/safetensors
//
//   auto file = SafetensorsFile::Open("model.safetensors");
//   const SafetensorsEntry* entry = file->Find("cls_token");   // null: it has none
//   file->Widen(*entry, floats);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/mapped_file.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file says: "F32", "BF16", "F16", "I64"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes of the file

  int64_t elements() const;
};

// Longest header that is read: one of 100,000 tensors takes less.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{32} << 20;

// The tensors of a file, by name, of which `file` is all bytes. INVALID_ARGUMENT, naming the
// tensor: a header that is truncated, too long or malformed, an unknown type, a shape whose bytes
// are not those between the offsets, offsets outside of the file, tensors that overlap, or bytes of
// no tensor.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> file);

// "[768, 1536]".
std::string FormatTensorShape(std::span<const int64_t> shape);

// Immutable; any number of threads may read it.
class SafetensorsFile {
 public:
  // Errors of MappedFile::Open and ParseSafetensors; the message names the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by name
  const SafetensorsEntry* Find(std::string_view name) const;

  // The tensor's numbers as float32. INVALID_ARGUMENT, naming it, where it is not F32, BF16 or F16.
  // `to` has entry.elements() elements.
  absl::Status Widen(const SafetensorsEntry& entry, std::span<float> to) const;

 private:
  SafetensorsFile(MappedFile file, std::vector<SafetensorsEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace hilbert_ring
