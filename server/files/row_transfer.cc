#include "server/files/row_transfer.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/files/open_beneath.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kMostBytes = 8 << 20;  // of a call, so that a cancelled job ends soon
// Copying a page from the system's cache takes about as long as a call.
constexpr int64_t kMostGap = 4096;
// Smaller pieces, on average, are read with their gaps to a buffer of the cache and copied from
// there: a third less time than a preadv into 1,024 places (128 bytes, half of the rows, Zen 4).
constexpr int64_t kSmallPiece = 1024;
constexpr int64_t kGatheredBytes = 64 << 10;

struct Group {
  int64_t begin = 0, end = 0;  // bytes of the file
  std::vector<iovec> parts;

  size_t bytes() const { return static_cast<size_t>(end - begin); }
};

absl::Status Truncated(const FileRows& file, int64_t at) {
  return wire::ErrorOf(
      wire::reason::kFileChanged,
      absl::StrCat(file.path, ": ends at byte ", at, ", was longer when the job was admitted"));
}

using Call = ssize_t (*)(int, const iovec*, int, off_t);

absl::Status Run(Call call, const char* what, const FileRows& file, Group& group) {
  size_t first = 0;
  int64_t at = group.begin;
  while (at < group.end) {
    const auto count = static_cast<int>(group.parts.size() - first);
    const ssize_t done = call(file.descriptor, group.parts.data() + first, count, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return FileError(file.path, absl::StrCat(what, " at byte ", at), errno);
    if (done == 0) return Truncated(file, at);
    at += done;
    for (auto left = static_cast<size_t>(done); left > 0;) {
      iovec& part = group.parts[first];
      const size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
      if (part.iov_len == 0) ++first;
    }
  }
  return absl::OkStatus();
}

struct GroupLimits {
  int64_t bytes = kMostBytes;
  std::span<std::byte> dropped;  // receives the bytes of gaps, which are no larger
};

// Cuts pieces into groups.
template <typename Visit>
absl::Status ForEachGroup(const FileRows& file, std::span<const RowPiece> pieces, std::byte* memory,
                          const GroupLimits& limits, const Visit& visit) {
  Group group;
  const auto flush = [&]() -> absl::Status {
    absl::Status status = group.parts.empty() ? absl::OkStatus() : visit(group);
    group.parts.clear();
    return status;
  };
  const int64_t most_rows = std::max<int64_t>(1, limits.bytes / file.row_bytes);
  for (const RowPiece& piece : pieces) {
    for (int64_t done = 0; done < piece.rows;) {
      const int64_t rows = std::min(most_rows, piece.rows - done);
      const int64_t begin = file.offset + (piece.file_row + done) * file.row_bytes;
      const int64_t bytes = rows * file.row_bytes;
      const int64_t gap = begin - group.end;
      const bool fits = !group.parts.empty() && gap <= std::ssize(limits.dropped) &&
                        std::ssize(group.parts) + 2 <= IOV_MAX &&
                        begin + bytes - group.begin <= limits.bytes;
      if (!fits) {
        if (absl::Status status = flush(); !status.ok()) return status;
        group.begin = begin;
      } else if (gap > 0) {
        group.parts.push_back({limits.dropped.data(), static_cast<size_t>(gap)});
      }
      group.parts.push_back(
          {memory + (piece.memory_row + done) * file.row_bytes, static_cast<size_t>(bytes)});
      group.end = begin + bytes;
      done += rows;
    }
  }
  return flush();
}

}  // namespace

void InFileOrder(std::vector<RowPiece>& pieces) {
  std::ranges::sort(pieces, {}, &RowPiece::file_row);
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    RowPiece& before = pieces[last];
    if (pieces[i].file_row == before.file_row + before.rows &&
        pieces[i].memory_row == before.memory_row + before.rows) {
      before.rows += pieces[i].rows;
    } else {
      pieces[++last] = pieces[i];
    }
  }
  if (!pieces.empty()) pieces.resize(last + 1);
}

absl::Status ReadRows(const FileRows& file, std::span<const RowPiece> pieces, std::byte* memory) {
  std::vector<std::byte> dropped(kMostGap);
  int64_t bytes = 0;
  for (const RowPiece& piece : pieces) bytes += piece.rows * file.row_bytes;
  if (bytes >= std::ssize(pieces) * kSmallPiece) {
    return ForEachGroup(file, pieces, memory, {.dropped = dropped},
                        [&](Group& group) { return Run(preadv, "cannot read", file, group); });
  }
  std::vector<std::byte> gathered(kGatheredBytes);
  return ForEachGroup(file, pieces, memory, {.bytes = kGatheredBytes, .dropped = dropped},
                      [&](const Group& group) {
                        Group whole = {group.begin, group.end, {{gathered.data(), group.bytes()}}};
                        absl::Status status = Run(preadv, "cannot read", file, whole);
                        if (!status.ok()) return status;
                        const std::byte* from = gathered.data();
                        for (const iovec& part : group.parts) {
                          const bool gap = part.iov_base == dropped.data();
                          if (!gap) std::memcpy(part.iov_base, from, part.iov_len);
                          from += part.iov_len;
                        }
                        return status;
                      });
}

absl::Status WriteRows(const FileRows& file, std::span<const RowPiece> pieces,
                       const std::byte* memory) {
  // iovec is not const, but pwritev only reads.
  return ForEachGroup(file, pieces, const_cast<std::byte*>(memory), {},
                      [&](Group& group) { return Run(pwritev, "cannot write", file, group); });
}

void ReadAhead(const FileRows& file, std::span<const RowPiece> pieces) {
  constexpr int64_t kFar = 256 << 10;  // the system's own read-ahead
  int64_t begin = 0, end = 0;
  const auto advise = [&] {
    if (end > begin) posix_fadvise(file.descriptor, begin, end - begin, POSIX_FADV_WILLNEED);
  };
  for (const RowPiece& piece : pieces) {
    const int64_t from = file.offset + piece.file_row * file.row_bytes;
    if (end == 0 || from - end > kFar) {
      advise();
      begin = from;
    }
    end = from + piece.rows * file.row_bytes;
  }
  advise();
}

}  // namespace hilbert_ring::server
