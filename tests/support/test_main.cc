#include "engine/base/end_process.h"
#include "gtest/gtest.h"

// GoogleTest's own returns from main, where threads that leave may meet exit handlers.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  hilbert_ring::EndProcess(RUN_ALL_TESTS());
}
