// Steps into a file system that may never answer, as a frozen volume or a mount whose server is
// gone: each on a thread of its own, so that who waits for it can leave.
//
//   FileSteps steps;
//   const auto seen = steps.Run<absl::Status>(
//       {.what = "--data-root", .reason = wire::reason::kDataRootGone, .limit = seconds(2)},
//       [root] { return root->Reach().status(); });
//
// A step that nobody waits for any more is left: it goes on when the file system answers. So a step
// owns all that it uses.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/process/deadline.h"
#include "server/process/threads.h"
#include "wire/reason.h"

namespace hilbert_ring::server {

// For how long a step is waited for, and what is said of one that is left.
struct Patience {
  std::string what;  // that does not answer
  const wire::Reason& reason;
  Clock::duration limit;
  std::string flag;                         // that sets the limit; empty: none does
  std::string caller;                       // whose step it is (Caller::turns); empty: nobody's
  std::function<absl::Status()> why_leave;  // asked 50 times a second: OK to go on; may be empty
};

// Thread-safe. Copies are the same: what each has left counts for all.
class FileSteps {
 public:
  // While so many steps are left and go on, no other begins, or none of the same caller.
  static constexpr int kMostLeft = 64;
  static constexpr int kMostLeftOfCaller = 16;

  // Its end waits for no step.
  explicit FileSteps(ThreadStarter start = StartThread);

  // What the step returns, an absl::Status or StatusOr; what it is made of is destroyed by then.
  // Errors besides: UNAVAILABLE with the patience's reason, where there is no answer within the
  // limit or as many are left as may be; what why_leave says; NoThreads.
  // returned: whether the step did; may be null.
  template <typename Result>
  Result Run(const Patience& patience, std::function<Result()> step, bool* returned = nullptr) {
    const auto result = std::make_shared<std::optional<Result>>();
    absl::Status ended = CheckRoom(patience);
    if (ended.ok()) {
      ended = Await(patience, [result, step = std::move(step)] { result->emplace(step()); });
    }
    if (returned != nullptr) *returned = ended.ok();
    if (!ended.ok()) return ended;
    return *std::move(*result);
  }

  // Destroys it, if this is its last owner, in a step of its own, and waits so long for that:
  // however many are left. Where there is no thread for it, it stays until the next call has one.
  void Destroy(std::shared_ptr<void> owned, Clock::duration limit);

  // Waits so long at most until those that are left have ended.
  void AwaitLeft(Clock::duration limit);

  int left() const;  // that go on

 private:
  struct Shared;  // with the steps

  absl::Status CheckRoom(const Patience& patience) const;
  absl::Status Await(const Patience& patience, std::function<void()> step);

  const ThreadStarter start_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace hilbert_ring::server
