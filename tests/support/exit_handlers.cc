#include <unistd.h>

namespace {

struct SaysWhenItGoes {
  ~SaysWhenItGoes() {
    constexpr char kSaid[] = "exit handlers run\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1);
  }
};

const SaysWhenItGoes says;

}  // namespace
