// Gloo's connections from one rank to all others, and what travels over them. All that Gloo throws
// becomes a status here; its types stay inside.
//
//   auto mesh = GlooMesh::Connect(options, all_gather);
//   auto transfer = mesh->StartReceive(receive, slot);
//   transfer->Wait(deadline);
//
// A mesh outlives its transfers, and is closed before those are destroyed that are not done. Errors
// of Gloo that are not a deadline's are UNAVAILABLE.
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

// One send or receive. Once it is done, or the mesh closed, its memory is not touched any more.
class GlooTransfer {
 public:
  enum class Direction { kSend, kReceive };

  GlooTransfer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, int peer,
               Direction direction);
  ~GlooTransfer();

  int peer() const { return peer_; }

  // By one thread. CANCELLED after Stop; DEADLINE_EXCEEDED, after which all of the mesh is closed.
  absl::Status Wait(Deadline deadline);

  // Makes the Wait in progress, or else the next one, return. Any thread.
  void Stop();

 private:
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  const int peer_;
  const Direction direction_;
};

class GlooMesh {
 public:
  // At least two ranks. INVALID_ARGUMENT: host is none of this machine's addresses or interfaces.
  // FAILED_PRECONDITION: the rendezvous brought together different rings.
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Connect(const GlooOptions& options,
                                                           const AllGather& all_gather);

  // Bytes that were sent still arrive, unless the mesh was closed before.
  ~GlooMesh();

  // Of at least one byte; both ends give the same slot.
  absl::StatusOr<std::unique_ptr<GlooTransfer>> StartSend(const Send& send, uint64_t slot);
  absl::StatusOr<std::unique_ptr<GlooTransfer>> StartReceive(const Receive& receive, uint64_t slot);

  // Resets all connections, so that the peers notice and no memory is in use any more; 10 to 20 ms
  // in rings of up to 16. A transfer may be waited for meanwhile; other calls exclude each other.
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
  // Shared because Gloo's buffers hold on to it.
  std::shared_ptr<gloo::transport::Context> context_;
  bool closed_ = false;
};

}  // namespace hilbert_ring
