// A folder of a test's own, removed with the object.
#pragma once

#include <filesystem>
#include <string>

namespace hilbert_ring::testing {

class TestFolder {
 public:
  TestFolder();  // ends the test's process where it cannot be made
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  // It is not removed: somebody is told to look into it.
  void Keep() { keep_ = true; }

 private:
  std::filesystem::path path_;
  bool keep_ = false;
};

// What a file holds; empty where there is none.
std::string FileText(const std::string& path);

}  // namespace hilbert_ring::testing
