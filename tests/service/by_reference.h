#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "tests/engine/run_engine.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {

// Bytes of rows that the coordinator has carried; -1 without a figure.
struct RowBytes {
  double received = -1, sent = -1;
  bool operator==(const RowBytes&) const = default;
};
RowBytes RowBytesOf(const Cluster& cluster);

bool AwaitDataRoot(const Cluster& cluster, int workers);

class ByReferenceTest : public ::testing::Test {
 protected:
  // The root lies in `folder_`; the workers see it too.
  void Start(std::vector<std::string> arguments = {}, WorkerPlace place = WorkerPlace::kLocal);

  static std::vector<int64_t> ShapeOf(const JobSpec& spec, v1::Tensor tensor);
  static std::string NameOf(v1::Tensor tensor);  // relative to the root

  v1::Open Write(const JobSpec& spec, const EngineInputs& inputs);

  static v1::TensorFile& FileOf(v1::Open& open, v1::Tensor tensor);

  std::unique_ptr<RawCall> Call(const v1::Open& open);
  absl::StatusOr<v1::Report> Finish(RawCall& call);
  absl::StatusOr<v1::Report> Run(const v1::Open& open);
  std::string ReasonOf(const v1::Open& open);  // the refusal's

  std::string Data(v1::Tensor tensor);  // of its file, behind the header

  std::vector<std::string> Stray();

  void ExpectAsSent(const JobSpec& spec, const EngineInputs& inputs);

  TestFolder folder_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace hilbert_ring::testing
