#include "client/cli/job_teller.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "client/cpp/steady_clock.h"

namespace hilbert_ring::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLogInterval{10};

}  // namespace

JobTeller::JobTeller(const GlobalOptions& global)
    : global_(global),
      terminal_(isatty(STDERR_FILENO) == 1 && global.format == OutputFormat::kText),
      retries_(global),
      line_(client::SteadyNow()) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Tell(stop); });
}

JobTeller::~JobTeller() {
  thread_.request_stop();
  thread_.join();
  const MutexLock lock(mutex_);
  Clear();
}

void JobTeller::Note(const client::JobProgress& progress) {
  const MutexLock lock(mutex_);
  if (progress.attempt == attempts_) {  // attempts are numbered from 0
    ++attempts_;
    Clear();
    retries_.Tell({.failure = progress.last_failure,
                   .attempt = attempts_,
                   .wait = progress.wait,
                   .away = progress.away});
  }
  line_.Note(progress, client::SteadyNow());
  noted_ = true;
}

void JobTeller::Clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void JobTeller::Tell(const std::stop_token& stop) {
  const std::chrono::milliseconds interval =
      terminal_ ? kRedraw : std::chrono::milliseconds(kLogInterval);
  MutexLock lock(mutex_);
  while (!wake_.wait_for(lock, stop, interval, [&stop]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop.stop_requested();
  })) {
    if (noted_) Draw();
  }
}

void JobTeller::Draw() {
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
