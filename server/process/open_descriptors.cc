#include "server/process/open_descriptors.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"

namespace hilbert_ring::server {

void ForEachDescriptor(absl::FunctionRef<void(int descriptor)> look) {
  std::error_code error;  // there is no /proc: nothing is known
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    int descriptor = 0;
    if (absl::SimpleAtoi(entry->path().filename().native(), &descriptor)) look(descriptor);
  }
}

}  // namespace hilbert_ring::server
