#include "engine/device/cuda/staging.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/base/thread_annotations.h"
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

  absl::Status Follow(void* stream) override {
    const MutexLock lock(arrived_mutex_);
    if (!any_arrived_) return absl::OkStatus();
    return CudaStatus(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), arrived_.get(), 0),
                      "waiting for rows");
  }

 private:
  absl::Status NextIn(Piece*& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(in_mutex_) {
    piece = &in_pieces_[next_in_++ % kPieces];
    return CudaStatus(cudaEventSynchronize(piece->free.get()), "waiting for a pinned piece");
  }

  // Ends a step on the stream that returned `error`.
  absl::Status Sent(cudaError_t error, Piece& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(in_mutex_) {
    if (error == cudaSuccess) error = cudaEventRecord(piece.free.get(), in_.get());
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
