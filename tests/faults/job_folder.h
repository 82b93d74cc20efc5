// Files of a job of zeros for the command line, in a folder of their own that goes with the object.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/job_spec.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {

class JobFolder {
 public:
  explicit JobFolder(const JobSpec& spec);

  bool made() const { return made_; }

  // `hilbert-ring attend` and its arguments.
  std::vector<std::string> Command(const std::string& server) const;

  std::string log() const { return folder_ / "client.log"; }
  std::string out() const { return folder_ / "out.npy"; }

 private:
  TestFolder folder_;
  bool made_ = false;
};

}  // namespace hilbert_ring::testing
