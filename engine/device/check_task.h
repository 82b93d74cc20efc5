// What every device asks of a task before it computes anything.
#pragma once

#include "absl/status/status.h"
#include "engine/device/attention.h"

namespace hilbert_ring {

// INVALID_ARGUMENT, naming the field, for a task that no kernel takes.
absl::Status CheckTask(const AttentionTask& task);
absl::Status CheckTask(const ZeroKeysTask& task);

}  // namespace hilbert_ring
