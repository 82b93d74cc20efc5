#include "engine/base/standard_streams.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

enum Seen { kHeld = 0, kReusable = 1, kUsable = 2, kTouched = 3 };

Seen SeenWithout(int first, int last) {
  for (int stream = first; stream <= last; ++stream) close(stream);
  HoldStandardStreams();
  if (open("/dev/null", O_RDWR) <= 2) return kReusable;
  char byte = 'x';
  for (int stream = first; stream <= last; ++stream) {
    const ssize_t done = stream == 0 ? read(stream, &byte, 1) : write(stream, &byte, 1);
    if (done >= 0 || errno != EBADF) return kUsable;
  }
  return kHeld;
}

TEST(StandardStreams, AClosedStreamIsNotReusedAndStaysClosed) {
  EXPECT_EXIT(_exit(SeenWithout(0, 2)), ::testing::ExitedWithCode(kHeld), "");
  EXPECT_EXIT(_exit(SeenWithout(1, 1)), ::testing::ExitedWithCode(kHeld), "");
  EXPECT_EXIT(_exit(SeenWithout(0, 0)), ::testing::ExitedWithCode(kHeld), "");
}

TEST(StandardStreams, AnOpenStreamIsLeftAlone) {
  EXPECT_EXIT(
      {
        HoldStandardStreams();
        const bool written = write(STDERR_FILENO, "there\n", 6) == 6;
        _exit(written ? kHeld : kTouched);
      },
      ::testing::ExitedWithCode(kHeld), "there");
}

}  // namespace
}  // namespace hilbert_ring
