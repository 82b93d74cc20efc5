#include "engine/device/cuda/staging.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;  // of a chunk of rows
constexpr int kPieces = 3;                // one is filled, one travels, one is done
constexpr int64_t kRowAlignment = 16;     // of the rows after their numbers in a piece

struct Piece {
  PinnedMemory memory;
  Event free;
  std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
};

// Pinned host memory, by its first address. Thread-safe.
class PinnedRanges {
 public:
  void Add(const std::byte* begin, int64_t bytes) {
    const MutexLock lock(mutex_);
    ends_[begin] = begin + bytes;
  }
  void Remove(const std::byte* begin) {
    const MutexLock lock(mutex_);
    ends_.erase(begin);
  }
  bool Has(const void* memory, int64_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(memory);
    const MutexLock lock(mutex_);
    const auto after = ends_.upper_bound(begin);
    return after != ends_.begin() && begin + bytes <= std::prev(after)->second;
  }

 private:
  Mutex mutex_;
  std::map<const std::byte*, const std::byte*> ends_ ABSL_GUARDED_BY(mutex_);
};

class RegisteredPin : public HostPin {
 public:
  RegisteredPin(PinnedRanges& ranges, void* memory) : ranges_(ranges), memory_(memory) {}
  ~RegisteredPin() override {
    ranges_.Remove(static_cast<const std::byte*>(memory_));
    cudaHostUnregister(memory_);
  }
  RegisteredPin(const RegisteredPin&) = delete;
  RegisteredPin& operator=(const RegisteredPin&) = delete;

 private:
  PinnedRanges& ranges_;
  void* const memory_;
};

class PinnedStaging : public Staging {
 public:
  // Called before other threads use it.
  absl::Status Prepare() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    absl::Status status = MakeStream(in_);
    status.Update(MakeStream(out_));
    status.Update(MakeEvent(arrived_));
    for (std::array<Piece, kPieces>* pieces : {&in_pieces_, &out_pieces_}) {
      for (Piece& piece : *pieces) {
        status.Update(MakePinned(piece.memory, kPieceBytes));
        status.Update(MakeEvent(piece.free));
      }
    }
    return status;
  }

  ~PinnedStaging() override {
    // Copies must not outlive the pieces.
    if (in_.get() != nullptr) cudaStreamSynchronize(in_.get());
    if (out_.get() != nullptr) cudaStreamSynchronize(out_.get());
    if (rows_ != nullptr) cudaFree(rows_);
  }

  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    const MutexLock lock(in_mutex_);
    if (pins_.Has(from, bytes)) return CopyPinnedIn(to, from, bytes);
    for (int64_t done = 0; done < bytes;) {
      const int64_t part = std::min(kPieceBytes, bytes - done);
      Piece* piece = nullptr;
      RETURN_IF_ERROR(NextIn(piece));
      std::memcpy(piece->data(), static_cast<const std::byte*>(from) + done,
                  static_cast<size_t>(part));
      const cudaError_t error =
          cudaMemcpyAsync(static_cast<std::byte*>(to) + done, piece->data(),
                          static_cast<size_t>(part), cudaMemcpyHostToDevice, in_.get());
      RETURN_IF_ERROR(Sent(error, *piece));
      done += part;
    }
    return absl::OkStatus();
  }

  absl::Status CopyRowsIn(const RowsIn& rows) override {
    if (rows.row_bytes <= 0) return absl::OkStatus();
    if (rows.row_bytes + static_cast<int64_t>(sizeof(int64_t)) + kRowAlignment > kPieceBytes) {
      return CopyLargeRowsIn(rows);
    }
    const MutexLock lock(in_mutex_);
    if (rows_ == nullptr) {
      RETURN_IF_ERROR(
          CudaStatus(cudaMalloc(&rows_, kPieceBytes), "allocating memory for rows to be placed"));
    }
    const int64_t most =
        (kPieceBytes - kRowAlignment) / (rows.row_bytes + static_cast<int64_t>(sizeof(int64_t)));
    const auto count = static_cast<int64_t>(rows.rows.size());
    for (int64_t first = 0; first < count; first += most) {
      RETURN_IF_ERROR(PlaceRows(rows, first, std::min(most, count - first)));
    }
    return absl::OkStatus();
  }

  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    if (bytes <= 0) return absl::OkStatus();
    const MutexLock lock(out_mutex_);
    RETURN_IF_ERROR(Follow(out_.get()));
    if (pins_.Has(to, bytes)) return CopyPinnedOut(to, from, bytes);
    const int64_t parts = (bytes + kPieceBytes - 1) / kPieceBytes;
    const auto part_bytes = [&](int64_t part) {
      return std::min(kPieceBytes, bytes - part * kPieceBytes);
    };
    // A part travels while the host copies the part before.
    for (int64_t part = 0; part <= parts; ++part) {
      if (part < parts) {
        Piece& piece = out_pieces_[part % kPieces];
        cudaError_t error = cudaMemcpyAsync(
            piece.data(), static_cast<const std::byte*>(from) + part * kPieceBytes,
            static_cast<size_t>(part_bytes(part)), cudaMemcpyDeviceToHost, out_.get());
        if (error == cudaSuccess) error = cudaEventRecord(piece.free.get(), out_.get());
        RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("copying ", bytes, " bytes out")));
      }
      if (part == 0) continue;
      Piece& before = out_pieces_[(part - 1) % kPieces];
      RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(before.free.get()),
                                 absl::StrCat("copying ", bytes, " bytes out")));
      std::memcpy(static_cast<std::byte*>(to) + (part - 1) * kPieceBytes, before.data(),
                  static_cast<size_t>(part_bytes(part - 1)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<HostPin>> Pin(void* memory, int64_t bytes) override {
    const cudaError_t error =
        cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault);
    if (error != cudaSuccess) cudaGetLastError();  // a refusal leaves the device as it was
    RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("pinning ", bytes, " bytes")));
    pins_.Add(static_cast<const std::byte*>(memory), bytes);
    return std::make_unique<RegisteredPin>(pins_, memory);
  }

  absl::Status Follow(void* stream) override {
    const MutexLock lock(arrived_mutex_);
    if (!any_arrived_) return absl::OkStatus();
    return CudaStatus(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), arrived_.get(), 0),
                      "waiting for rows");
  }

 private:
  // The caller may change the rows when this returns.
  absl::Status CopyPinnedIn(void* to, const void* from, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(in_mutex_) {
    cudaError_t error =
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, in_.get());
    RETURN_IF_ERROR(NoteArrived(error));
    return CudaStatus(cudaStreamSynchronize(in_.get()), "copying rows in");
  }

  absl::Status CopyPinnedOut(void* to, const void* from, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(out_mutex_) {
    cudaError_t error =
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, out_.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(out_.get());
    return CudaStatus(error, absl::StrCat("copying ", bytes, " bytes out"));
  }

  absl::Status NextIn(Piece*& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(in_mutex_) {
    piece = &in_pieces_[next_in_++ % kPieces];
    return CudaStatus(cudaEventSynchronize(piece->free.get()), "waiting for a pinned piece");
  }

  // Ends a step on the stream that returned `error`.
  absl::Status Sent(cudaError_t error, Piece& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(in_mutex_) {
    if (error == cudaSuccess) error = cudaEventRecord(piece.free.get(), in_.get());
    return NoteArrived(error);
  }

  absl::Status NoteArrived(cudaError_t error) {
    const MutexLock lock(arrived_mutex_);
    if (error == cudaSuccess) error = cudaEventRecord(arrived_.get(), in_.get());
    any_arrived_ = true;
    return CudaStatus(error, "copying rows in");
  }

  // Places rows by one piece: their numbers, then the rows.
  absl::Status PlaceRows(const RowsIn& rows, int64_t first, int64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(in_mutex_) {
    Piece* piece = nullptr;
    RETURN_IF_ERROR(NextIn(piece));
    const int64_t number_bytes = count * static_cast<int64_t>(sizeof(int64_t));
    const int64_t begin = (number_bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    const int64_t bytes = count * rows.row_bytes;
    std::memcpy(piece->data(), rows.rows.data() + first, static_cast<size_t>(number_bytes));
    std::memcpy(piece->data() + begin,
                static_cast<const std::byte*>(rows.from) + first * rows.row_bytes,
                static_cast<size_t>(bytes));
    cudaError_t error = cudaMemcpyAsync(rows_, piece->data(), static_cast<size_t>(begin + bytes),
                                        cudaMemcpyHostToDevice, in_.get());
    if (error == cudaSuccess) {
      error =
          LaunchScatterRows(rows.to, static_cast<std::byte*>(rows_) + begin,
                            static_cast<const int64_t*>(rows_), count, rows.row_bytes, in_.get());
    }
    return Sent(error, *piece);
  }

  absl::Status CopyLargeRowsIn(const RowsIn& rows) {
    const auto* from = static_cast<const std::byte*>(rows.from);
    for (const int64_t row : rows.rows) {
      RETURN_IF_ERROR(
          CopyIn(static_cast<std::byte*>(rows.to) + row * rows.row_bytes, from, rows.row_bytes));
      from += rows.row_bytes;
    }
    return absl::OkStatus();
  }

  Stream in_, out_;
  PinnedRanges pins_;
  Mutex arrived_mutex_;  // taken last
  Mutex in_mutex_ ABSL_ACQUIRED_BEFORE(arrived_mutex_);
  Mutex out_mutex_ ABSL_ACQUIRED_BEFORE(arrived_mutex_);
  std::array<Piece, kPieces> in_pieces_ ABSL_GUARDED_BY(in_mutex_);
  size_t next_in_ ABSL_GUARDED_BY(in_mutex_) = 0;
  // Device memory of a piece: rows to place.
  void* rows_ ABSL_GUARDED_BY(in_mutex_) = nullptr;
  std::array<Piece, kPieces> out_pieces_ ABSL_GUARDED_BY(out_mutex_);
  Event arrived_ ABSL_GUARDED_BY(arrived_mutex_);  // after all rows that were copied in
  bool any_arrived_ ABSL_GUARDED_BY(arrived_mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Staging>> Staging::Make() {
  auto staging = std::make_unique<PinnedStaging>();
  RETURN_IF_ERROR(staging->Prepare());
  return staging;
}

}  // namespace hilbert_ring::cuda
