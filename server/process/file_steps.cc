#include "server/process/file_steps.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Until a reason to leave is seen.
constexpr std::chrono::milliseconds kLeavePoll{20};

using Owned = std::vector<std::shared_ptr<void>>;

struct NeverDestroyed {
  Mutex mutex;
  Owned owned ABSL_GUARDED_BY(mutex);
};

NeverDestroyed& Never() {
  static auto& never = *new NeverDestroyed;
  return never;
}

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
  std::map<std::string, int> left_of ABSL_GUARDED_BY(mutex);  // by caller, those that have some
  Owned kept ABSL_GUARDED_BY(mutex);  // to be destroyed, when there is a thread for that

  // What is kept then is destroyed no more: that may take for ever.
  ~Shared() {
    NeverDestroyed& never = Never();
    const MutexLock lock(never.mutex);
    never.owned.insert(never.owned.end(), kept.begin(), kept.end());
  }

  void Leave(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    ++left;
    ++left_of[caller];
  }
  void End(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    --left;
    const auto of = left_of.find(caller);
    if (--of->second == 0) left_of.erase(of);
  }
};

FileSteps::FileSteps(ThreadStarter start)
    : start_(std::move(start)), shared_(std::make_shared<Shared>()) {}

int FileSteps::left() const {
  const MutexLock lock(shared_->mutex);
  return shared_->left;
}

absl::Status FileSteps::CheckRoom(const Patience& patience) const {
  const MutexLock lock(shared_->mutex);
  const auto of = shared_->left_of.find(patience.caller);
  const bool many = shared_->left >= kMostLeft;
  if (!many && (of == shared_->left_of.end() || of->second < kMostLeftOfCaller)) {
    return absl::OkStatus();
  }
  return Unavailable(patience,
                     absl::StrCat("not tried, for ", many ? shared_->left : of->second, " steps",
                                  many ? "" : " of this caller",
                                  " before it wait for a file system that does not answer"));
}

absl::Status FileSteps::Await(const Patience& patience, std::function<void()> step) {
  Shared& shared = *shared_;
  const auto state = std::make_shared<StepState>(StepState::kUnderWay);
  auto thread =
      start_([shared = shared_, state, caller = patience.caller, step = std::move(step)]() mutable {
        pthread_setname_np(pthread_self(), "file_step");  // for ps -L
        step();
        step = nullptr;  // what it is made of may take long to destroy
        const MutexLock lock(shared->mutex);
        if (*state == StepState::kLeft) shared->End(caller);
        *state = StepState::kEnded;
        shared->changed.notify_all();
      });
  RETURN_IF_ERROR(thread.status());
  thread->detach();
  const Deadline due = Clock::now() + patience.limit;
  MutexLock lock(shared.mutex);
  while (*state != StepState::kEnded) {
    shared.changed.wait_until(lock, std::min(due, Clock::now() + kLeavePoll));
    lock.unlock();
    absl::Status why = patience.why_leave ? patience.why_leave() : absl::OkStatus();
    if (why.ok() && Clock::now() >= due) why = NoAnswer(patience);
    lock.lock();
    if (why.ok() || *state == StepState::kEnded) continue;
    *state = StepState::kLeft;
    shared.Leave(patience.caller);
    return why;
  }
  return absl::OkStatus();
}

void FileSteps::Destroy(std::shared_ptr<void> owned, Clock::duration limit) {
  const auto held = std::make_shared<Owned>();
  {
    const MutexLock lock(shared_->mutex);
    held->swap(shared_->kept);
  }
  held->push_back(std::move(owned));
  const absl::Status ended = Await({.what = "", .reason = wire::reason::kFileIo, .limit = limit},
                                   [held] { held->clear(); });
  if (!absl::IsResourceExhausted(ended)) return;
  const MutexLock lock(shared_->mutex);
  shared_->kept.insert(shared_->kept.end(), held->begin(), held->end());
}

void FileSteps::AwaitLeft(Clock::duration limit) {
  MutexLock lock(shared_->mutex);
  shared_->changed.wait_for(lock, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_->mutex) {
    return shared_->left == 0;
  });
}

}  // namespace hilbert_ring::server
