#include "server/worker/broken_device.h"

#include <cstdint>

#include "engine/comm/communicator.h"

namespace hilbert_ring::server {

bool IsBroken(Device& device, const absl::Status& error) {
  if (error.GetPayload(kMemoryInUse).has_value()) return true;
  if (!absl::IsInternal(error) || device.host_memory()) return false;
  constexpr int64_t kFloats = 16;
  float copy[kFloats] = {};
  const auto buffer = device.Allocate(sizeof(copy));
  if (!buffer.ok()) return !absl::IsResourceExhausted(buffer.status());
  auto* const floats = reinterpret_cast<float*>((*buffer)->data());
  return !device.FillFloats(floats, kFloats, 1).ok() ||
         !device.CopyOut(copy, floats, sizeof(copy)).ok() || copy[kFloats - 1] != 1;
}

}  // namespace hilbert_ring::server
