#include "client/cli/progress_bar.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "client/cli/failure.h"
#include "client/cpp/steady_clock.h"

namespace hilbert_ring::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLogInterval{10};

}  // namespace

ProgressBar::ProgressBar(const GlobalOptions& global)
    : global_(global),
      terminal_(isatty(STDERR_FILENO) == 1 && global.format == OutputFormat::kText),
      line_(client::SteadyNow()) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Tell(stop); });
}

ProgressBar::~ProgressBar() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  Interrupt([] {});
}

void ProgressBar::Note(const client::AttendProgress& progress) {
  const MutexLock lock(mutex_);
  line_.Note(progress, client::SteadyNow());
  noted_ = true;
}

void ProgressBar::Clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void ProgressBar::Tell(const std::stop_token& stop) {
  const std::chrono::milliseconds interval =
      terminal_ ? kRedraw : std::chrono::milliseconds(kLogInterval);
  MutexLock lock(mutex_);
  while (!wake_.wait_for(lock, stop, interval, [&stop]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop.stop_requested();
  })) {
    if (noted_) Draw();
  }
}

void ProgressBar::Draw() {
  const absl::Time now = client::SteadyNow();
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line_.Bar(now).c_str());
    std::fflush(stderr);
    drawn_ = true;
  } else {
    PrintProgress(global_, line_, now);
  }
}

}  // namespace hilbert_ring::cli
