#include "tests/support/test_folder.h"

#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <system_error>

namespace hilbert_ring::testing {

TestFolder::TestFolder() {
  std::string name = std::filesystem::temp_directory_path() / "hilbert_ring_test_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  if (!keep_) std::filesystem::remove_all(path_, ignored);
}

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace hilbert_ring::testing
