#include "engine/base/end_process.h"
#include "gtest/gtest.h"

// GoogleTest's own main returns, and exit handlers may then meet running threads.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  hilbert_ring::EndProcess(RUN_ALL_TESTS());
}
