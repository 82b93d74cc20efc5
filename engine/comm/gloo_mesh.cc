#include "engine/comm/gloo_mesh.h"

#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/gloo_pairs.h"
#include "gloo/transport/context.h"
#include "gloo/transport/device.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace hilbert_ring {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// All ranks listen after the rendezvous, so a connection takes a round trip.
constexpr milliseconds kConnectLimit = std::chrono::seconds(10);

// Timeouts after which a pair of Gloo gives up connecting.
constexpr int kTimeoutsToConnect = 5;

// Gloo closes a connection at its event loop's next turn, up to 10 ms later: closers share it.
constexpr int kClosers = 16;

// Gloo adds timeouts to the clock: an unlimited timeout would overflow.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

milliseconds TimeUntil(Deadline deadline) {
  const Clock::time_point now = Clock::now();
  if (deadline <= now) return milliseconds(1);
  return std::min(std::chrono::ceil<milliseconds>(deadline - now), kLongest);
}

template <typename F>
absl::Status Caught(const F& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  } catch (...) {
    return absl::UnknownError("an exception of unknown type");
  }
}

bool CanBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = bind(fd, address.ai_addr, address.ai_addrlen) == 0;
  close(fd);
  return bound;
}

// The numeric form of the first address of `host` that a socket of this machine can bind.
// INVALID_ARGUMENT: the name is unknown or its addresses are another machine's.
absl::StatusOr<std::string> LocalAddress(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &first); error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("host is '", host, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(first, freeaddrinfo);
  for (const addrinfo* address = first; address != nullptr; address = address->ai_next) {
    char text[NI_MAXHOST] = {};
    if (CanBind(*address) && getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof(text),
                                         nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(text);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("host is '", host, "', must be an address of this machine"));
}

// Gives Gloo only addresses that it can bind: it reads an uninitialised pointer if a name does not
// resolve, and leaks the addresses of a failed bind.
absl::StatusOr<gloo::transport::tcp::attr> DeviceAttributes(const std::string& host) {
  gloo::transport::tcp::attr attributes;
  if (host.empty()) return absl::InvalidArgumentError("host is empty");
  if (if_nametoindex(host.c_str()) != 0) {
    attributes.iface = host;
    return attributes;
  }
  ASSIGN_OR_RETURN(attributes.hostname, LocalAddress(host));
  return attributes;
}

}  // namespace

GlooTransfer::GlooTransfer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer, int peer,
                           Direction direction)
    : buffer_(std::move(buffer)), peer_(peer), direction_(direction) {}

GlooTransfer::~GlooTransfer() = default;

absl::Status GlooTransfer::Wait(Deadline deadline) {
  bool done = false;
  const absl::Status status = Caught([&] {
    const milliseconds timeout = TimeUntil(deadline);
    done = direction_ == Direction::kSend ? buffer_->waitSend(nullptr, timeout)
                                          : buffer_->waitRecv(nullptr, timeout);
  });
  if (!status.ok()) {
    return Clock::now() >= deadline ? absl::DeadlineExceededError("not done in time") : status;
  }
  return done ? absl::OkStatus() : absl::CancelledError("stopped");
}

void GlooTransfer::Stop() {
  if (direction_ == Direction::kSend) {
    buffer_->abortWaitSend();
  } else {
    buffer_->abortWaitRecv();
  }
}

GlooMesh::GlooMesh(const GlooOptions& options) : options_(options) {}

GlooMesh::~GlooMesh() = default;

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Connect(const GlooOptions& options,
                                                            const AllGather& all_gather) {
  std::unique_ptr<GlooMesh> mesh(new GlooMesh(options));
  RETURN_IF_ERROR(mesh->Listen());
  const std::string own = mesh->OwnBlob();
  ASSIGN_OR_RETURN(auto blobs, all_gather(own, options.deadline));
  if (blobs.size() != static_cast<size_t>(options.size)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the rendezvous gave ", blobs.size(), " blobs for ", options.size, " ranks"));
  }
  const absl::string_view ring = absl::string_view(own).substr(0, options.ring.size() + 1);
  for (int peer = 0; peer < options.size; ++peer) {
    const std::string& blob = blobs[peer];
    if (blob.size() != own.size() || !absl::StartsWith(blob, ring)) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", peer, " is not of ring '", options.ring, "'"));
    }
  }
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    RETURN_IF_ERROR(mesh->ConnectTo(peer, blobs[peer]));
  }
  return mesh;
}

absl::Status GlooMesh::Listen() {
  ASSIGN_OR_RETURN(auto attributes, DeviceAttributes(options_.host));
  std::shared_ptr<gloo::transport::Device> device;
  absl::Status status = Caught([&] { device = gloo::transport::tcp::CreateDevice(attributes); });
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("host is '", options_.host, "': ", status.message()));
  }
  return Caught([&] {
    context_ = MakeGlooContext(device, {.rank = options_.rank, .size = options_.size});
    context_->setTimeout(std::min(TimeUntil(options_.deadline), kConnectLimit) /
                             kTimeoutsToConnect +
                         milliseconds(1));
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer != options_.rank) context_->createPair(peer);
    }
  });
}

// The ring's name, a zero byte, then one address for each rank, all of the same size.
std::string GlooMesh::OwnBlob() const {
  std::string blob = options_.ring + '\0';
  for (int peer = 0; peer < options_.size; ++peer) {
    // No rank reads its own address; an address of equal size fills its place.
    const int listener = peer != options_.rank ? peer : (peer + 1) % options_.size;
    const std::vector<char> address = context_->getPair(listener)->address().bytes();
    blob.append(address.begin(), address.end());
  }
  return blob;
}

absl::Status GlooMesh::ConnectTo(int peer, const std::string& blob) {
  const size_t begin = options_.ring.size() + 1;
  const size_t bytes = (blob.size() - begin) / options_.size;
  const char* address = blob.data() + begin + options_.rank * bytes;
  absl::Status status = Caught(
      [&] { context_->getPair(peer)->connect(std::vector<char>(address, address + bytes)); });
  if (Clock::now() >= options_.deadline) {
    return WithPeer(absl::DeadlineExceededError(absl::StrCat("connecting to rank ", peer)), peer);
  }
  if (status.ok()) return status;
  return WithPeer(
      absl::UnavailableError(absl::StrCat("connecting to rank ", peer, ": ", status.message())),
      peer);
}

absl::StatusOr<std::unique_ptr<GlooTransfer>> GlooMesh::StartSend(const Send& send, uint64_t slot) {
  return Start(send.peer, const_cast<void*>(send.data), send.bytes, slot,
               GlooTransfer::Direction::kSend);
}

absl::StatusOr<std::unique_ptr<GlooTransfer>> GlooMesh::StartReceive(const Receive& receive,
                                                                     uint64_t slot) {
  return Start(receive.peer, receive.data, receive.bytes, slot, GlooTransfer::Direction::kReceive);
}

absl::StatusOr<std::unique_ptr<GlooTransfer>> GlooMesh::Start(int peer, void* data, int64_t bytes,
                                                              uint64_t slot,
                                                              GlooTransfer::Direction direction) {
  std::unique_ptr<GlooTransfer> transfer;
  const absl::Status status = Caught([&] {
    auto buffer = context_->createUnboundBuffer(data, bytes);
    gloo::transport::UnboundBuffer& started = *buffer;
    transfer = std::make_unique<GlooTransfer>(std::move(buffer), peer, direction);
    if (direction == GlooTransfer::Direction::kSend) {
      started.send(peer, slot);
    } else {
      started.recv(peer, slot);
    }
  });
  RETURN_IF_ERROR(status);
  return transfer;
}

void GlooMesh::Close() {
  if (std::exchange(closed_, true)) return;
  const auto close_share = [this](int first) {
    for (int peer = first; peer < options_.size; peer += kClosers) {
      if (peer != options_.rank) context_->getPair(peer)->close();
    }
  };
  std::vector<std::thread> closers;
  closers.reserve(kClosers);
  for (int first = 0; first < std::min(kClosers, options_.size); ++first) {
    closers.emplace_back(close_share, first);
  }
  for (std::thread& closer : closers) closer.join();
}

}  // namespace hilbert_ring
