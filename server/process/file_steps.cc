#include "server/process/file_steps.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Until a reason to leave is seen.
constexpr std::chrono::milliseconds kPoll{20};

enum class StepState { kUnderWay, kEnded, kLeft };

absl::Status Unavailable(const Patience& patience, const std::string& why) {
  return wire::WithReason(absl::UnavailableError(absl::StrCat(patience.what, ": ", why)),
                          patience.reason);
}

absl::Status NoAnswer(const Patience& patience) {
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(patience.limit);
  const std::string flag = patience.flag.empty() ? "" : absl::StrCat(" (", patience.flag, ")");
  return Unavailable(patience, absl::StrCat("no answer within ", limit.count(), " ms", flag));
}

}  // namespace

struct FileSteps::Shared {
  Mutex mutex;
  ConditionVariable changed;  // a step has ended
  int left ABSL_GUARDED_BY(mutex) = 0;
};

FileSteps::FileSteps(ThreadStarter start)
    : start_(std::move(start)), shared_(std::make_shared<Shared>()) {}

int FileSteps::left() const {
  const MutexLock lock(shared_->mutex);
  return shared_->left;
}

absl::Status FileSteps::CheckRoom(const Patience& patience) const {
  const int waiting = left();
  if (waiting < kMostLeft) return absl::OkStatus();
  return Unavailable(patience,
                     absl::StrCat("not tried, for ", waiting,
                                  " steps before it wait for a file system that does not answer"));
}

absl::Status FileSteps::Await(const Patience& patience, std::function<void()> step) {
  Shared& shared = *shared_;
  const auto state = std::make_shared<StepState>(StepState::kUnderWay);
  auto thread = start_([shared = shared_, state, step = std::move(step)]() mutable {
    pthread_setname_np(pthread_self(), "file_step");  // for ps -L
    step();
    step = nullptr;  // what it is made of may take long to destroy
    const MutexLock lock(shared->mutex);
    if (*state == StepState::kLeft) --shared->left;
    *state = StepState::kEnded;
    shared->changed.notify_all();
  });
  RETURN_IF_ERROR(thread.status());
  thread->detach();
  const Deadline due = Clock::now() + patience.limit;
  MutexLock lock(shared.mutex);
  while (*state != StepState::kEnded) {
    shared.changed.wait_until(lock, std::min(due, Clock::now() + kPoll));
    lock.unlock();
    absl::Status why = patience.why_leave ? patience.why_leave() : absl::OkStatus();
    if (why.ok() && Clock::now() >= due) why = NoAnswer(patience);
    lock.lock();
    if (why.ok() || *state == StepState::kEnded) continue;
    *state = StepState::kLeft;
    ++shared.left;
    return why;
  }
  return absl::OkStatus();
}

void FileSteps::Destroy(std::shared_ptr<void> owned, Clock::duration limit) {
  absl::Status left = Await({.what = "", .reason = wire::reason::kFileIo, .limit = limit},
                            [owned = std::move(owned)]() mutable { owned.reset(); });
  left.IgnoreError();  // it goes on
}

}  // namespace hilbert_ring::server
