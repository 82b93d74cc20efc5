#include "engine/comm/comm_step.h"

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

struct Named {
  const char* list;
  size_t index;
};

absl::Status CheckTransfer(Named name, int peer, const void* data, int64_t bytes, int rank,
                           int size) {
  const auto invalid = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(name.list, "[", name.index, "]", what...));
  };
  if (peer < 0 || peer >= size) {
    return invalid(".peer is ", peer, ", must be in [0, ", size, ")");
  }
  if (peer == rank) return invalid(".peer is ", peer, ", the rank itself");
  if (bytes < 0) return invalid(".bytes is ", bytes, ", must be >= 0");
  if (bytes > 0 && data == nullptr) return invalid(".data is null, bytes is ", bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStep(const CommStep& step, int rank, int size, int64_t last_number) {
  if (step.number <= last_number) {
    return absl::InvalidArgumentError(
        absl::StrCat("number is ", step.number, ", must be > ", last_number));
  }
  for (size_t i = 0; i < step.sends.size(); ++i) {
    const Send& send = step.sends[i];
    RETURN_IF_ERROR(CheckTransfer({"sends", i}, send.peer, send.data, send.bytes, rank, size));
  }
  for (size_t i = 0; i < step.receives.size(); ++i) {
    const Receive& receive = step.receives[i];
    RETURN_IF_ERROR(
        CheckTransfer({"receives", i}, receive.peer, receive.data, receive.bytes, rank, size));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring
