// A folder that is removed with the object.
#pragma once

#include <filesystem>
#include <string>

namespace hilbert_ring::testing {

class TestFolder {
 public:
  TestFolder();  // aborts on failure
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  void Keep() { keep_ = true; }

 private:
  std::filesystem::path path_;
  bool keep_ = false;
};

std::string FileText(const std::string& path);

}  // namespace hilbert_ring::testing
