#include "engine/device/cpu/memory.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

// The system's flags of the mapping that holds the address ("VmFlags: rd wr ... hg ...").
std::string FlagsOf(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  bool holds = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      holds = begin <= wanted && wanted < end;
    } else if (holds && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

TEST(MapMemory, LargeMemoryIsAskedForInHugePagesAndSmallIsNot) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "the kernel has no transparent huge pages";
  }
  const auto large = MapMemory(int64_t{32} << 20);
  const auto small = MapMemory(int64_t{1} << 20);
  ASSERT_TRUE(large.ok() && small.ok());
  EXPECT_THAT(FlagsOf((*large)->data()), testing::HasSubstr(" hg "));
  EXPECT_THAT(FlagsOf((*small)->data()), testing::Not(testing::HasSubstr(" hg ")));
}

}  // namespace
}  // namespace hilbert_ring
