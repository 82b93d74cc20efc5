#include "engine/model/files/file_digests.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;

// Remembered stamps; when full, all are forgotten. A replaced file leaves one behind.
constexpr size_t kMostKnown = 4096;

// File systems' clocks step by up to 2 s.
constexpr absl::Duration kClockStep = absl::Seconds(3);

class Sha256Sum {
 public:
  Sha256Sum() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
      throw std::bad_alloc();
    }
  }
  void Add(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  Digest Finish() {
    Digest digest;
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

Digest Sha256(std::span<const std::byte> bytes) {
  Sha256Sum sum;
  sum.Add(bytes);
  return sum.Finish();
}

absl::StatusOr<Digest> Sha256Of(const ReadableFile& file, const std::atomic<bool>* stopped) {
  Sha256Sum sum;
  std::vector<std::byte> piece;
  for (int64_t at = 0; at < file.bytes(); at += kReadBytes) {
    if (stopped != nullptr && *stopped) return absl::CancelledError("this process ends");
    piece.resize(static_cast<size_t>(std::min(kReadBytes, file.bytes() - at)));
    RETURN_IF_ERROR(file.Read(at, piece));
    sum.Add(piece);
  }
  RETURN_IF_ERROR(file.CheckUnchanged());
  return sum.Finish();
}

std::string HexOf(const Digest& digest) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

bool FileDigests::Settled(const ReadableFile& file) const {
  return absl::FromUnixNanos(file.stamp().changed_ns) + kClockStep < now_();
}

absl::StatusOr<Digest> FileDigests::Of(const ReadableFile& file) {
  const bool settled = Settled(file);
  if (settled) {
    const MutexLock lock(mutex_);
    if (const auto known = known_.find(file.stamp()); known != known_.end()) return known->second;
  }
  ASSIGN_OR_RETURN(const Digest digest, Sha256Of(file, &stopped_));
  ASSIGN_OR_RETURN(const FileStamp now, file.StampNow());
  const MutexLock lock(mutex_);
  bytes_read_ += file.bytes();
  if (settled && now == file.stamp()) {
    if (known_.size() >= kMostKnown) known_.clear();
    known_.insert_or_assign(file.stamp(), digest);
  }
  return digest;
}

int64_t FileDigests::bytes_read() const {
  const MutexLock lock(mutex_);
  return bytes_read_;
}

}  // namespace hilbert_ring
