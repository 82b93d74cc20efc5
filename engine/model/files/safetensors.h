// Weights as the safetensors format keeps them: eight bytes with the header's length, a JSON object
// of names, types, shapes and places, and then the numbers.
// https://huggingface.co/docs/safetensors
//
//   ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::Open("model.safetensors"));
//   ASSIGN_OR_RETURN(const auto weights, SafetensorsFile::Read(std::move(file)));
//   const SafetensorsEntry* entry = weights.Find("cls_token");   // null: it has none
//   RETURN_IF_ERROR(weights.Widen(*entry, floats));
#pragma once

#include <cstddef>
#include <cstdint>
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
  std::string dtype;  // as the file says: "F32", "BF16", "F16", "I64"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes of the file

  int64_t elements() const;
};

// Longest header that is read: one of 100,000 tensors takes less.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{32} << 20;

// Bytes of a file before its first tensor: eight, and the header. `begin` is the file's first eight
// bytes or more, where it has as many. INVALID_ARGUMENT: the file is shorter than its header, or
// the header is too long.
absl::StatusOr<int64_t> SafetensorsHeadBytes(std::span<const std::byte> begin, int64_t file_bytes);

// The tensors of a file of so many bytes, by name; `head`: its bytes before the first tensor, or
// more. INVALID_ARGUMENT, naming the tensor: errors of SafetensorsHeadBytes, a malformed header, an
// unknown type, a shape whose bytes are not those between the offsets, offsets outside of the file,
// tensors that overlap, or bytes of no tensor.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> head,
                                                               int64_t file_bytes);

// That of an entry; nothing where it is not F32, BF16 or F16.
std::optional<DataType> FloatTypeOf(const SafetensorsEntry& entry);

// "[768, 1536]".
std::string FormatTensorShape(std::span<const int64_t> shape);

// Immutable; any number of threads may read it.
class SafetensorsFile {
 public:
  // Reads the header. Errors of ReadableFile::Read and ParseSafetensors, RESOURCE_EXHAUSTED
  // without memory; the message names the path.
  static absl::StatusOr<SafetensorsFile> Read(ReadableFile file);

  const ReadableFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by name
  const SafetensorsEntry* Find(std::string_view name) const;

  // Whether the file still begins with the header that was read. UNAVAILABLE: it does not.
  absl::Status CheckHead() const;

  // Reads the tensor's numbers as float32. INVALID_ARGUMENT, naming it, where it is not F32, BF16
  // or F16; errors of ReadableFile::Read. `to` has entry.elements() elements.
  absl::Status Widen(const SafetensorsEntry& entry, std::span<float> to) const;

 private:
  SafetensorsFile(ReadableFile file, std::vector<std::byte> head,
                  std::vector<SafetensorsEntry> entries)
      : file_(std::move(file)), head_(std::move(head)), entries_(std::move(entries)) {}

  ReadableFile file_;
  std::vector<std::byte> head_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace hilbert_ring
