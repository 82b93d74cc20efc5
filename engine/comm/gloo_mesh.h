// Gloo's connections from one rank to all others. Exceptions of Gloo become statuses here.
//
//   auto mesh = GlooMesh::Connect(options, all_gather);
//   auto transfer = mesh->StartReceive(receive, slot);
//   transfer->Wait(deadline);
//
// Destroy a mesh after its transfers. Close it before transfers that are not done are destroyed.
// Errors of Gloo except an exceeded deadline are UNAVAILABLE.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace hilbert_ring {

// A send or receive, which leaves its memory alone once it is done or the mesh is closed.
class GlooTransfer {
 public:
  enum class Direction { kSend, kReceive };

  GlooTransfer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, int peer,
               Direction direction);
  ~GlooTransfer();

  int peer() const { return peer_; }

  // Called by one thread. CANCELLED after Stop. DEADLINE_EXCEEDED: Gloo has closed the whole mesh.
  absl::Status Wait(Deadline deadline);

  // Makes the Wait in progress, or else the next Wait, return. Thread-safe.
  void Stop();

 private:
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  const int peer_;
  const Direction direction_;
};

class GlooMesh {
 public:
  // size: at least 2. INVALID_ARGUMENT: `host` is not an address or interface of this machine.
  // FAILED_PRECONDITION: the ranks are of different rings.
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Connect(const GlooOptions& options,
                                                           const AllGather& all_gather);

  // Sent bytes still arrive, unless the mesh was closed before.
  ~GlooMesh();

  // Transfers have one byte or more; both ends give the same slot.
  absl::StatusOr<std::unique_ptr<GlooTransfer>> StartSend(const Send& send, uint64_t slot);
  absl::StatusOr<std::unique_ptr<GlooTransfer>> StartReceive(const Receive& receive, uint64_t slot);

  // Resets all connections: peers notice, and no memory stays in use. Takes 10 to 20 ms with up to
  // 16 ranks. A thread may be in a transfer's Wait; other calls exclude each other.
  void Close();

 private:
  explicit GlooMesh(const GlooOptions& options);

  absl::Status Listen();
  std::string OwnBlob() const;
  absl::Status ConnectTo(int peer, const std::string& blob);
  absl::StatusOr<std::unique_ptr<GlooTransfer>> Start(int peer, void* data, int64_t bytes,
                                                      uint64_t slot,
                                                      GlooTransfer::Direction direction);

  const GlooOptions options_;
  std::shared_ptr<gloo::transport::Context> context_;
  bool closed_ = false;
};

}  // namespace hilbert_ring
