#include "tests/unit/client/test_files.h"

#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

TestFiles::TestFiles() {
  std::string pattern = std::filesystem::temp_directory_path() / "hilbert_ring_client_test.XXXXXX";
  folder_ = mkdtemp(pattern.data());
}

TestFiles::~TestFiles() { std::filesystem::remove_all(folder_); }

std::vector<std::string> TestFiles::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string TestFiles::Write(std::string_view name, std::string_view bytes) const {
  std::string path = Path(name);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string GoldenPath(const std::string& golden_case, const std::string& file) {
  return absl::StrCat(HILBERT_RING_GOLDEN_DIR, "/", golden_case, "/", file);
}

}  // namespace hilbert_ring::client
