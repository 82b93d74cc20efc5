#include "server/process/stop_signals.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <ctime>
#include <thread>

#include "server/process/logging.h"

namespace hilbert_ring::server {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // writers of a file beyond `ulimit -f` get EFBIG
}

void UnblockStopSignals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::optional<int> AwaitStopSignal(std::optional<std::chrono::milliseconds> limit) {
  const sigset_t set = StopSignals();
  while (true) {
    int taken = -1;
    if (limit) {
      const timespec time{.tv_sec = static_cast<time_t>(limit->count() / 1000),
                          .tv_nsec = static_cast<long>(limit->count() % 1000) * 1'000'000};
      taken = sigtimedwait(&set, nullptr, &time);
      if (taken < 0 && errno == EAGAIN) return std::nullopt;
    } else {
      taken = sigwaitinfo(&set, nullptr);
    }
    if (taken > 0) return taken;
  }
}

void LimitStop(std::chrono::milliseconds limit) {
  std::thread([limit] {
    std::this_thread::sleep_for(limit);
    spdlog::critical("stopping: not done within {} ms, the process ends", limit.count());
    FlushLog();
    std::_Exit(kStopTimedOut);
  }).detach();
}

}  // namespace hilbert_ring::server
