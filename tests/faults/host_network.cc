#include "tests/faults/host_network.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {
namespace {

// A single thread carries all frames: long frames are faster.
constexpr int kFrameBytes = 9000;
constexpr int kReadBytes = kFrameBytes + 64;
constexpr int kFramesAtOnce = 64;  // of one host before the others' turn

absl::Status Because(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

absl::Status Run(const std::string& command) {
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return Because(command);
  std::string output;
  char buffer[256];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
  if (pclose(pipe) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(command, ": ", output));
}

void WriteTo(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// Root's rights are not needed if a user namespace can be made.
absl::Status EnterNamespaces() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  const int users = user == 0 ? 0 : CLONE_NEWUSER;
  if (unshare(users | CLONE_NEWNET | CLONE_NEWNS) != 0) return Because("unshare");
  if (users != 0) {
    WriteTo("/proc/self/setgroups", "deny");
    WriteTo("/proc/self/uid_map", absl::StrCat("0 ", user, " 1"));
    WriteTo("/proc/self/gid_map", absl::StrCat("0 ", group, " 1"));
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return Because("mount /");
  // Names of network namespaces lie in /run: this /run ends with the process.
  if (mount("none", "/run", "tmpfs", 0, nullptr) != 0) return Because("mount /run");
  return Run("ip link set lo up");
}

absl::StatusOr<int> OpenTap(const std::string& name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return Because("/dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name.c_str());
  if (ioctl(fd, TUNSETIFF, &request) != 0) {
    absl::Status status = Because(absl::StrCat("tap device ", name));
    close(fd);
    return status;
  }
  return fd;
}

std::string SetLink(int host, const char* to) {
  const std::string within = host == 0 ? "" : absl::StrCat("-n ", HostNetwork::Name(host), " ");
  return absl::StrCat("ip ", within, "link set tap", host, " ", to);
}

std::pair<int, int> Ordered(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

}  // namespace

std::string HostNetwork::Name(int host) { return host == 0 ? "" : absl::StrCat("host", host); }

std::string HostNetwork::Address(int host) { return absl::StrCat("10.77.0.", host + 1); }

absl::StatusOr<std::unique_ptr<HostNetwork>> HostNetwork::Make(int hosts, uint64_t seed) {
  if (absl::Status status = EnterNamespaces(); !status.ok()) return status;
  std::unique_ptr<HostNetwork> network(new HostNetwork(hosts, seed));
  for (int host = 0; host < hosts; ++host) {
    if (absl::Status status = network->AddHost(host); !status.ok()) return status;
  }
  network->carrier_ =
      std::jthread([&network = *network](const std::stop_token& stop) { network.Carry(stop); });
  return network;
}

HostNetwork::~HostNetwork() {
  carrier_ = {};
  for (const int fd : taps_) {
    if (fd >= 0) close(fd);
  }
}

// The hardware address ends in the host's number, by which the switch routes frames.
absl::Status HostNetwork::AddHost(int host) {
  const std::string tap = absl::StrCat("tap", host);
  auto fd = OpenTap(tap);
  if (!fd.ok()) return fd.status();
  taps_[host] = *fd;
  std::string within;
  if (host > 0) {
    const std::string name = Name(host);
    within = absl::StrCat("-n ", name, " ");
    for (const std::string& command :
         {absl::StrCat("ip netns add ", name), absl::StrCat("ip link set ", tap, " netns ", name),
          absl::StrCat("ip ", within, "link set lo up")}) {
      if (absl::Status status = Run(command); !status.ok()) return status;
    }
  }
  const std::string hardware = absl::StrCat("02:00:00:00:00:", absl::Hex(host, absl::kZeroPad2));
  for (const std::string& command :
       {absl::StrCat("ip ", within, "link set ", tap, " address ", hardware),
        absl::StrCat("ip ", within, "link set ", tap, " mtu ", kFrameBytes, " up"),
        absl::StrCat("ip ", within, "addr add ", Address(host), "/24 dev ", tap)}) {
    if (absl::Status status = Run(command); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void HostNetwork::Cut(int a, int b) {
  const std::lock_guard lock(mutex_);
  cuts_.insert(Ordered(a, b));
}

void HostNetwork::Isolate(int host) {
  const std::lock_guard lock(mutex_);
  for (int other = 0; other < hosts(); ++other) {
    if (other != host) cuts_.insert(Ordered(host, other));
  }
}

void HostNetwork::SetLinkDown(int host) {
  {
    const std::lock_guard lock(mutex_);
    down_.insert(host);
  }
  Run(SetLink(host, "down")).IgnoreError();
}

void HostNetwork::SetLoss(double part) {
  const std::lock_guard lock(mutex_);
  loss_ = part;
}

void HostNetwork::Mend() {
  const std::lock_guard lock(mutex_);
  for (const int host : down_) Run(SetLink(host, "up")).IgnoreError();
  down_.clear();
  cuts_.clear();
  loss_ = 0;
}

void HostNetwork::Carry(const std::stop_token& stop) {
  std::vector<pollfd> polled;
  for (const int fd : taps_) polled.push_back({.fd = fd, .events = POLLIN});
  while (!stop.stop_requested()) {
    {
      // A link that is down would poll as ready with errors.
      const std::lock_guard lock(mutex_);
      for (int host = 0; host < hosts(); ++host) {
        polled[host].fd = down_.contains(host) ? -1 : taps_[host];
        polled[host].revents = 0;
      }
    }
    poll(polled.data(), polled.size(), 20);
    for (int host = 0; host < hosts(); ++host) {
      if (polled[host].revents != 0) Take(host);
    }
  }
}

void HostNetwork::Take(int from) {
  std::string bytes(kReadBytes, '\0');
  for (int i = 0; i < kFramesAtOnce; ++i) {
    const ssize_t length = read(taps_[from], bytes.data(), kReadBytes);
    if (length < 14) return;
    const std::string frame = bytes.substr(0, static_cast<size_t>(length));
    const auto first = static_cast<unsigned char>(frame[0]);
    const int to = static_cast<unsigned char>(frame[5]);
    if ((first & 1) == 0) {
      if (to < hosts() && to != from) Pass(from, to, frame);
      continue;
    }
    for (int other = 0; other < hosts(); ++other) {
      if (other != from) Pass(from, other, frame);
    }
  }
}

void HostNetwork::Pass(int from, int to, const std::string& bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (cuts_.contains(Ordered(from, to)) ||
        (loss_ > 0 && std::uniform_real_distribution<>(0, 1)(random_) < loss_)) {
      return;
    }
  }
  // A busy host loses the frame, as on a switch.
  [[maybe_unused]] const ssize_t written = write(taps_[to], bytes.data(), bytes.size());
}

}  // namespace hilbert_ring::testing
