#include "engine/model/weight_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cpu/memory.h"
#include "engine/model/files/file_digests.h"

namespace hilbert_ring {
namespace {

constexpr auto kPoll = absl::Milliseconds(20);
constexpr int64_t kHeadBytes = 4096;  // before the data, which begins at a page

struct Head {
  static constexpr uint64_t kMagic = 0x73746867'69657772;  // changes with the layout
  uint64_t magic = 0;
  int64_t bytes = 0;
  Digest digest{};  // of the data
};

std::string PrefixOf() { return absl::StrCat("hilbert-ring-weights-", geteuid(), "-"); }

// An open file that its last user unlinks.
class SharedFile {
 public:
  SharedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile() {
    if (fd_ < 0) return;
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0 && IsThere()) unlink(path_.c_str());
    close(fd_);
  }

  int fd() const { return fd_; }
  absl::Status Error(const char* what) const {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": ", what));
  }

  bool IsThere() const {
    struct stat named {
    }, open{};
    return stat(path_.c_str(), &named) == 0 && fstat(fd_, &open) == 0 &&
           named.st_dev == open.st_dev && named.st_ino == open.st_ino;
  }

 private:
  std::string path_;
  int fd_;
};

struct Locked {
  std::unique_ptr<SharedFile> file;
  bool alone = false;  // the lock is exclusive: no other process reads
};

class PrivateMemory : public WeightMemory {
 public:
  explicit PrivateMemory(std::unique_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}
  std::byte* data() override { return buffer_->data(); }
  int64_t bytes() const override { return buffer_->bytes(); }
  bool filled() const override { return filled_; }
  bool shared() const override { return false; }
  absl::Status Seal() override {
    filled_ = true;
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  bool filled_ = false;
};

class SharedWeights : public WeightMemory {
 public:
  // The file is locked, and has the size of head and data.
  SharedWeights(Locked locked, int64_t bytes)
      : file_(std::move(locked.file)), alone_(locked.alone), bytes_(bytes) {}
  ~SharedWeights() override {
    if (mapped_ != nullptr) munmap(mapped_, static_cast<size_t>(kHeadBytes + bytes_));
  }

  absl::Status Map() {
    void* const mapped = mmap(nullptr, static_cast<size_t>(kHeadBytes + bytes_),
                              PROT_READ | PROT_WRITE, MAP_SHARED, file_->fd(), 0);
    if (mapped == MAP_FAILED) return file_->Error("cannot be mapped");
    mapped_ = static_cast<std::byte*>(mapped);
    Head head;
    std::memcpy(&head, mapped_, sizeof(head));
    if (head.magic == Head::kMagic && head.bytes == bytes_ && head.digest == DigestOfData()) {
      return Close();
    }
    if (alone_) return absl::OkStatus();
    errno = EIO;
    return file_->Error("does not have its sealed checksum, and other processes read it");
  }

  std::byte* data() override { return mapped_ + kHeadBytes; }
  int64_t bytes() const override { return bytes_; }
  bool filled() const override { return filled_; }
  bool shared() const override { return true; }

  void NoteProgress() override { futimens(file_->fd(), nullptr); }

  absl::Status Seal() override {
    const Head head{.magic = Head::kMagic, .bytes = bytes_, .digest = DigestOfData()};
    std::memcpy(mapped_, &head, sizeof(head));
    return Close();
  }

 private:
  Digest DigestOfData() {
    return Sha256(std::span<const std::byte>(data(), static_cast<size_t>(bytes_)));
  }

  absl::Status Close() {
    if (mprotect(mapped_, static_cast<size_t>(kHeadBytes + bytes_), PROT_READ) != 0 ||
        flock(file_->fd(), LOCK_SH) != 0) {
      return file_->Error("cannot be closed to writers");
    }
    filled_ = true;
    return absl::OkStatus();
  }

  const std::unique_ptr<SharedFile> file_;
  const bool alone_;
  const int64_t bytes_;
  std::byte* mapped_ = nullptr;
  bool filled_ = false;
};

// Checks that the file is regular and that only this user can write it.
absl::Status CheckOurs(const SharedFile& file, struct stat& is) {
  if (fstat(file.fd(), &is) != 0) return file.Error("cannot be looked at");
  if (!S_ISREG(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & 0077) != 0) {
    errno = EPERM;
    return absl::FailedPreconditionError(
        std::string(file.Error("is not this user's own file").message()));
  }
  return absl::OkStatus();
}

// Measures how long a file was waited for, and how long it has not changed.
class Wait {
 public:
  explicit Wait(absl::Duration longest, absl::Duration patience)
      : longest_(absl::ToChronoMilliseconds(longest)),
        patience_(absl::ToChronoMilliseconds(patience)) {}

  // `changed`: the file's modification time now.
  bool IsOver(const timespec& changed) {
    const Clock::time_point now = Clock::now();
    if (changed.tv_sec != changed_.tv_sec || changed.tv_nsec != changed_.tv_nsec) {
      changed_ = changed;
      since_ = now;
    }
    return now - begin_ >= longest_ || now - since_ >= patience_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const std::chrono::milliseconds longest_, patience_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point since_ = begin_;
  timespec changed_ = {};
};

// Returns the file locked: exclusively to fill it, or shared if others read it already.
absl::StatusOr<Locked> OpenLocked(const std::string& path, int64_t bytes, Wait wait) {
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    auto file = std::make_unique<SharedFile>(path, fd);
    if (fd < 0) return file->Error("cannot be opened");
    struct stat is {};
    RETURN_IF_ERROR(CheckOurs(*file, is));
    // A shared lock succeeds only on a filled file, because filling holds an exclusive one.
    const bool alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (alone || flock(fd, LOCK_SH | LOCK_NB) == 0) {
      if (!file->IsThere()) continue;  // its last user has removed it
      RETURN_IF_ERROR(CheckOurs(*file, is));
      if (is.st_size == kHeadBytes + bytes) return Locked{std::move(file), alone};
      if (alone) {
        if (ftruncate(fd, 0) != 0) return file->Error("cannot be resized");
        // Allocates all pages now: a page that is missing later would kill the process.
        errno = posix_fallocate(fd, 0, kHeadBytes + bytes);
        if (errno != 0) {
          return absl::ResourceExhaustedError(
              std::string(file->Error("cannot be made large enough").message()));
        }
        return Locked{std::move(file), alone};
      }
    }
    if (wait.IsOver(is.st_mtim)) {
      return absl::UnavailableError(
          absl::StrCat(path, ": another process has not filled it in time"));
    }
    absl::SleepFor(kPoll);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightMemory>> WeightMemory::Private(int64_t bytes) {
  ASSIGN_OR_RETURN(auto buffer, MapMemory(bytes));
  return std::make_unique<PrivateMemory>(std::move(buffer));
}

absl::StatusOr<std::unique_ptr<WeightMemory>> WeightMemory::Shared(const std::string& folder,
                                                                   const std::string& key,
                                                                   int64_t bytes,
                                                                   absl::Duration wait,
                                                                   absl::Duration patience) {
  const std::string path = absl::StrCat(folder, "/", PrefixOf(), key);
  ASSIGN_OR_RETURN(Locked locked, OpenLocked(path, bytes, Wait(wait, patience)));
  auto memory = std::make_unique<SharedWeights>(std::move(locked), bytes);
  RETURN_IF_ERROR(memory->Map());
  return memory;
}

void WeightMemory::RemoveUnused(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!absl::StartsWith(entry.path().filename().string(), PrefixOf())) continue;
    const int fd = open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    const SharedFile unused(entry.path().string(), fd);  // removes the file if no process has it
  }
}

}  // namespace hilbert_ring
