#include "server/job/named_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/files/open_beneath.h"
#include "server/files/row_transfer.h"
#include "server/job/job_open.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using wire::NpyHeader;
using wire::NpyType;

bool IsOutput(v1::Tensor tensor) {
  const auto kind = wire::TensorKindOf(tensor);
  return kind && hilbert_ring::IsOutput(*kind);
}

absl::Status Misshapen(const std::string& path, const std::string& what) {
  return wire::ErrorOf(wire::reason::kFileMisshapen, absl::StrCat(path, ": ", what));
}

NpyType TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return NpyType::kFloat16;
    case DataType::kBFloat16:
      return NpyType::kRaw16;
    case DataType::kFloat32:
      break;
  }
  return NpyType::kFloat32;
}

bool IsInteger(NpyType type) { return type >= NpyType::kInt16 && type <= NpyType::kUInt64; }

bool IsSigned(NpyType type) {
  return type == NpyType::kInt16 || type == NpyType::kInt32 || type == NpyType::kInt64;
}

absl::Status Check(const NpyHeader& header, const std::string& path, const JobArray& array) {
  if (header.fortran_order) return Misshapen(path, "is in Fortran order, must be in C order");
  if (header.shape != array.shape) {
    return Misshapen(path, absl::StrCat("has the shape ", wire::FormatShape(header.shape),
                                        ", the job wants ", wire::FormatShape(array.shape)));
  }
  bool right = false;
  const char* wanted = "integers";
  switch (array.numbers) {
    case JobArray::Numbers::kIntegers:
      right = IsInteger(header.type);
      break;
    case JobArray::Numbers::kFloat64:
      right = header.type == NpyType::kFloat64;
      wanted = "float64";
      break;
    case JobArray::Numbers::kOfDtype:
      right = wire::MayHold(header.type, array.dtype);
      wanted = wire::NpyTypeName(TypeOf(array.dtype));
      break;
  }
  if (right) return absl::OkStatus();
  return Misshapen(path, absl::StrCat("has numbers of type ", wire::NpyTypeName(header.type),
                                      ", the job wants ", wanted));
}

absl::StatusOr<NpyHeader> ReadHeader(const Descriptor& file, const std::string& path) {
  constexpr size_t kPrefix = 12;  // magic, version, length
  constexpr size_t kLikely = 256;
  std::string begin(kLikely, '\0');
  while (true) {
    const ssize_t bytes = pread(file.number(), begin.data(), begin.size(), 0);
    if (bytes < 0) return FileError(path, "cannot read", errno);
    const bool cut = bytes == std::ssize(begin);
    begin.resize(static_cast<size_t>(bytes));
    auto header = wire::ParseNpyHeader(begin);
    if (header.ok()) return header;
    if (!cut || begin.size() >= kPrefix + wire::kMaxNpyHeaderBytes) {
      return Misshapen(path, std::string(header.status().message()));
    }
    begin.resize(kPrefix + wire::kMaxNpyHeaderBytes);
  }
}

absl::StatusOr<NpyHeader> HeaderOfRaw(const v1::RawFile& raw, const std::string& path) {
  const std::optional<DataType> dtype = wire::DecodeDataType(raw.dtype());
  if (!dtype) return BadOpen(absl::StrCat("files: raw.dtype of ", path, " is not given"));
  if (raw.offset() < 0) {
    return BadOpen(absl::StrCat("files: raw.offset of ", path, " is ", raw.offset(),
                                ", must not be negative"));
  }
  return NpyHeader{.type = TypeOf(*dtype),
                   .shape = {raw.shape().begin(), raw.shape().end()},
                   .data_offset = raw.offset()};
}

absl::StatusOr<std::string> RowsOf(const FileRows& file, int64_t first, int64_t count) {
  std::string bytes(static_cast<size_t>(count * file.row_bytes), '\0');
  const RowPiece piece{.file_row = first, .memory_row = 0, .rows = count};
  RETURN_IF_ERROR(ReadRows(file, std::span(&piece, 1), reinterpret_cast<std::byte*>(bytes.data())));
  return bytes;
}

// Integers as uint32, as chunks carry coordinates. first: the row of the first integer. axes: of a
// row. BAD_COORDINATES.
absl::StatusOr<std::string> Narrowed(NpyType type, const std::string& path,
                                     const std::string& bytes, int64_t first, int axes) {
  const auto width = static_cast<size_t>(wire::NpyItemBytes(type));
  const auto unused_bits = static_cast<int>(64 - 8 * width);
  std::string narrow(bytes.size() / width * sizeof(uint32_t), '\0');
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + i * width, width);
    const auto extended = static_cast<int64_t>(value << unused_bits) >> unused_bits;
    const bool negative = IsSigned(type) && extended < 0;
    if (negative || value > std::numeric_limits<uint32_t>::max()) {
      return wire::ErrorOf(
          wire::reason::kBadCoordinates,
          absl::StrCat(path, ": row ", first + static_cast<int64_t>(i) / axes, ", axis ",
                       static_cast<int64_t>(i) % axes, " is ", negative ? "-" : "",
                       negative ? -static_cast<uint64_t>(extended) : value,
                       ", must be 0 to 2^32 - 1"));
    }
    const auto number = static_cast<uint32_t>(value);
    std::memcpy(narrow.data() + i * sizeof(number), &number, sizeof(number));
  }
  return narrow;
}

}  // namespace

absl::StatusOr<std::string> FolderOf(const Caller& caller) {
  if (caller.folder == "." || (caller.folder.empty() && caller.name.empty())) return "";
  const std::string& folder = caller.folder.empty() ? caller.name : caller.folder;
  // The folder of a name with '/' would lie in that of another caller.
  if (caller.folder.empty() && folder.find('/') != std::string::npos) {
    return wire::ErrorOf(wire::reason::kFilePath,
                         absl::StrCat("the caller's name is '", folder,
                                      "', must have no '/' to be a folder beneath the data root "
                                      "(root in --auth-token-file)"));
  }
  if (absl::Status status = CheckFilePath(folder); !status.ok()) {
    return wire::ErrorOf(wire::reason::kFilePath,
                         absl::StrCat("the caller's folder beneath the data root: ",
                                      status.message(), " (root in --auth-token-file)"));
  }
  return folder;
}

absl::StatusOr<std::unique_ptr<NamedFiles>> NamedFiles::Open(DataRoot* root, const Caller& caller,
                                                             const v1::Open& open,
                                                             const JobWork& work) {
  if (root == nullptr) {
    return wire::ErrorOf(wire::reason::kNoDataRoot, "files: the service has no --data-root");
  }
  ASSIGN_OR_RETURN(const std::string folder, FolderOf(caller));
  ASSIGN_OR_RETURN(const Descriptor reached, root->Reach());
  std::unique_ptr<NamedFiles> files(new NamedFiles(*root, work));
  for (const v1::TensorFile& file : open.files()) {
    // The caller's own path: the folder before it would make an absolute path valid.
    RETURN_IF_ERROR(CheckFilePath(file.path()));
    const std::string path = folder.empty() ? file.path() : absl::StrCat(folder, "/", file.path());
    RETURN_IF_ERROR(files->Take(file, path, reached.number()));
  }
  RETURN_IF_ERROR(files->CheckAllNamed());
  RETURN_IF_ERROR(files->CheckDistinct(reached.number()));
  return files;
}

absl::Status NamedFiles::Take(const v1::TensorFile& file, const std::string& path, int root) {
  const std::string name = wire::TensorName(file.tensor());
  if (inputs_.contains(file.tensor()) || outputs_.contains(file.tensor())) {
    return BadOpen(absl::StrCat("files: ", name, " is named twice"));
  }
  const JobArray array = work_.ArrayOf(file.tensor());
  if (array.shape.empty()) {
    return BadOpen(absl::StrCat("files: ", name, " is not among the job's tensors in files"));
  }
  return IsOutput(file.tensor()) ? TakeOutput(file, array, path, root)
                                 : TakeInput(file, array, path, root);
}

absl::Status NamedFiles::TakeInput(const v1::TensorFile& file, const JobArray& array,
                                   const std::string& path, int root) {
  Input input{.path = path};
  ASSIGN_OR_RETURN(input.file, OpenFile(root, path, O_RDONLY));
  ASSIGN_OR_RETURN(input.version, VersionOf(input.file, path));
  ASSIGN_OR_RETURN(const NpyHeader header,
                   file.has_raw() ? HeaderOfRaw(file.raw(), path) : ReadHeader(input.file, path));
  RETURN_IF_ERROR(Check(header, path, array));
  input.offset = header.data_offset;
  input.type = header.type;
  int64_t bytes = wire::NpyItemBytes(header.type);
  for (const int64_t axis : array.shape) bytes *= axis;  // of a valid spec
  if (input.version.bytes - input.offset < bytes) {
    return Misshapen(path,
                     absl::StrCat("has ", input.version.bytes, " bytes, its ", array.shape.front(),
                                  " rows take ", bytes, " from byte ", input.offset, " on"));
  }
  inputs_.emplace(file.tensor(), std::move(input));
  return absl::OkStatus();
}

absl::Status NamedFiles::TakeOutput(const v1::TensorFile& file, const JobArray& array,
                                    const std::string& path, int root) {
  Output output{.path = path,
                .raw = file.has_raw(),
                .row_bytes = work_.shape().rows[*wire::TensorKindOf(file.tensor())],
                .rows = array.shape.front()};
  if (file.has_raw()) {
    ASSIGN_OR_RETURN(const NpyHeader header, HeaderOfRaw(file.raw(), path));
    RETURN_IF_ERROR(Check(header, path, array));
    if (header.data_offset != 0) {
      return BadOpen(absl::StrCat("files: raw.offset of the output ", path, " is ",
                                  header.data_offset, ", must be 0"));
    }
  }
  RETURN_IF_ERROR(CheckReplaceable(root, path));
  outputs_.emplace(file.tensor(), std::move(output));
  return absl::OkStatus();
}

absl::Status NamedFiles::CheckAllNamed() const {
  for (int i = v1::Tensor_MIN; i <= v1::Tensor_MAX; ++i) {
    const auto tensor = static_cast<v1::Tensor>(i);
    if (work_.ArrayOf(tensor).shape.empty()) continue;  // not the client's, or sent
    if (inputs_.contains(tensor) || outputs_.contains(tensor)) continue;
    return BadOpen(absl::StrCat("files: ", wire::TensorName(tensor),
                                " is missing; a job's tensors are all in files or all sent"));
  }
  return absl::OkStatus();
}

// An output in the place of an input or another output would destroy it.
absl::Status NamedFiles::CheckDistinct(int root) const {
  std::set<std::string> paths;
  for (const auto& [tensor, output] : outputs_) {
    if (!paths.insert(output.path).second) {
      return BadOpen(absl::StrCat("files: two outputs are ", output.path));
    }
    struct stat found = {};
    const auto there = OpenBeneath(root, output.path, O_PATH);
    if (!there.ok() || fstat(there->number(), &found) != 0) continue;
    for (const auto& [input, file] : inputs_) {
      if (file.version.inode != found.st_ino || file.version.device != found.st_dev) continue;
      return BadOpen(absl::StrCat("files: the output ", output.path, " is the input ", file.path));
    }
  }
  return absl::OkStatus();
}

absl::Status NamedFiles::CheckUnchanged() const {
  for (const auto& [tensor, input] : inputs_) {
    ASSIGN_OR_RETURN(const FileVersion now, VersionOf(input.file, input.path));
    if (now == input.version) continue;
    const std::string how =
        now.bytes == input.version.bytes
            ? "its modification time changed"
            : absl::StrCat("it has ", now.bytes, " bytes, it had ", input.version.bytes);
    return wire::ErrorOf(wire::reason::kFileChanged,
                         absl::StrCat(input.path, ": was written to while the job read it: ", how));
  }
  return absl::OkStatus();
}

absl::Status NamedFiles::CheckReachable(const Members& live) const {
  if (std::ranges::any_of(live, [this](const auto& worker) { return Reaches(*worker); })) {
    return absl::OkStatus();
  }
  return wire::ErrorOf(wire::reason::kDataRootGone,
                       absl::StrCat("files: ", live.size(),
                                    " workers are up, and each lacks the mark of this service's "
                                    "--data-root in its own"));
}

absl::Status NamedFiles::Prepare(const TakeRows& take) {
  RETURN_IF_ERROR(MakeOutputs());
  if (std::exchange(taken_, true)) return absl::OkStatus();
  for (const v1::Tensor tensor :
       {v1::TENSOR_COORDS, v1::TENSOR_BIAS_COORDS, v1::TENSOR_TILE_COORDS}) {
    if (!inputs_.contains(tensor)) continue;
    const int64_t rows = work_.ArrayOf(tensor).shape.front();
    for (int64_t first = 0; first < rows;) {
      ClientMessage message;
      v1::Chunk& chunk = *message.request.mutable_chunk();
      ASSIGN_OR_RETURN(const std::string payload, ReadChunk(tensor, first, chunk));
      message.payload = wire::Payload(payload);
      RETURN_IF_ERROR(take(message));
      first += chunk.rows();
    }
  }
  return absl::OkStatus();
}

std::string NamedFiles::HeaderOf(v1::Tensor output) const {
  const JobArray array = work_.ArrayOf(output);
  NpyType type = TypeOf(array.dtype);
  // bfloat16 has the type of the input.
  const auto q = inputs_.find(v1::TENSOR_Q);
  if (type == NpyType::kRaw16 && q != inputs_.end()) type = q->second.type;
  return wire::FormatNpyHeader(type, array.shape);
}

absl::Status NamedFiles::MakeOutputs() {
  for (auto& [tensor, output] : outputs_) output.file.reset();
  RETURN_IF_ERROR(CheckUnchanged());
  ASSIGN_OR_RETURN(const Descriptor root, root_.Reach());
  for (auto& [tensor, output] : outputs_) {
    ASSIGN_OR_RETURN(OutputFile file,
                     OutputFile::Create(root_, root.number(),
                                        {.path = output.path,
                                         .header = output.raw ? "" : HeaderOf(tensor),
                                         .data_bytes = output.rows * output.row_bytes}));
    output.file.emplace(std::move(file));
  }
  return absl::OkStatus();
}

void NamedFiles::AddTo(v1::RunOpen& open) const {
  const auto add = [&open](v1::Tensor tensor, const std::string& path, int64_t offset,
                           const FileVersion& version) {
    v1::ShardFile& file = *open.add_files();
    file.set_tensor(tensor);
    file.set_path(path);
    file.set_offset(offset);
    file.set_inode(version.inode);
    file.set_bytes(version.bytes);
  };
  for (const auto& [tensor, input] : inputs_) {
    if (ComesAhead(tensor)) continue;  // the coordinator sends what follows from them
    add(tensor, input.path, input.offset, input.version);
  }
  for (const auto& [tensor, output] : outputs_) {
    add(tensor, output.file->unfinished(), output.file->offset(), output.file->version());
  }
}

absl::StatusOr<std::string> NamedFiles::ReadChunk(v1::Tensor tensor, int64_t first_row,
                                                  v1::Chunk& chunk) const {
  const Input& input = inputs_.at(tensor);
  const JobArray array = work_.ArrayOf(tensor);
  const int64_t numbers = array.shape.back();  // of a row
  const int64_t most = std::max<int64_t>(1, wire::kMaxPayloadBytes / (numbers * 8));
  const int64_t count = std::min(most, array.shape.front() - first_row);
  ASSIGN_OR_RETURN(std::string bytes,
                   RowsOf({.descriptor = input.file.number(),
                           .path = input.path,
                           .offset = input.offset,
                           .row_bytes = numbers * wire::NpyItemBytes(input.type)},
                          first_row, count));
  if (array.numbers == JobArray::Numbers::kIntegers) {
    ASSIGN_OR_RETURN(bytes,
                     Narrowed(input.type, input.path, bytes, first_row, static_cast<int>(numbers)));
  }
  chunk.set_tensor(tensor);
  chunk.set_first_row(first_row);
  chunk.set_rows(count);
  chunk.set_crc32c(wire::Crc32c(bytes));
  return bytes;
}

absl::Status NamedFiles::ReadBack(RowCheck& check,
                                  const std::function<std::shared_ptr<const Member>(int64_t)>& of) {
  for (const int64_t token : check.tokens()) {
    for (const auto& [tensor, output] : outputs_) {
      ASSIGN_OR_RETURN(const std::string row, RowsOf({.descriptor = output.file->descriptor(),
                                                      .path = output.path,
                                                      .offset = output.file->offset(),
                                                      .row_bytes = output.row_bytes},
                                                     token, 1));
      v1::OutputChunk chunk;
      chunk.set_tensor(tensor);
      chunk.set_rows(1);
      chunk.set_first_token(token);
      check.Take(chunk, row, of(token));
    }
  }
  return absl::OkStatus();
}

absl::Status NamedFiles::Commit(const JobStop& stop) {
  RETURN_IF_ERROR(CheckUnchanged());
  // All slow steps come before the first output gets its name.
  for (const auto& [tensor, output] : outputs_) RETURN_IF_ERROR(output.file->Sync());
  RETURN_IF_ERROR(stop.why());
  for (auto& [tensor, output] : outputs_) RETURN_IF_ERROR(output.file->Commit());
  return absl::OkStatus();
}

std::optional<int64_t> NamedFiles::BytesByWorkers() const {
  int64_t bytes = 0;
  for (const auto& [tensor, output] : outputs_) bytes += output.rows * output.row_bytes;
  return bytes;
}

}  // namespace hilbert_ring::server
