#include "tests/faults/job_folder.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec_json.h"

namespace hilbert_ring::testing {

JobFolder::JobFolder(const JobSpec& spec) {
  std::ofstream(folder_ / "spec.json") << FormatJobSpec(spec);
  const std::vector<int64_t> shape = {spec.tokens, spec.heads, spec.head_dim};
  auto rows = client::NpyWriter::Create(folder_ / "rows.npy", wire::NpyType::kFloat32, shape);
  made_ = rows.ok() && rows->Commit().ok();
}

std::vector<std::string> JobFolder::Command(const std::string& server) const {
  const std::string rows = folder_ / "rows.npy";
  return {HILBERT_RING_CLIENT_BINARY,
          absl::StrCat("--server=", server),
          "attend",
          "--spec=" + (folder_ / "spec.json"),
          "--q=" + rows,
          "--k=" + rows,
          "--v=" + rows,
          "--out=" + out()};
}

}  // namespace hilbert_ring::testing
