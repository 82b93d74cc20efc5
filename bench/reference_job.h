// The ways of one job that reference_bench measures: by the engine alone, with its tensors in
// files, and with its tensors sent.
//
//   const Place place("/dev/shm", PublishedJob(tokens, dtype, false), 1);  // files, and a service
//   EngineJob(spec, *device, place.files()).Run();
//   place.RunByReference(spec);
//   place.RunSent(spec);
//
// Failures throw (or_fail.h).
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/one_shard_job.h"
#include "engine/device/device.h"
#include "engine/spec/job_spec.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::bench {

// A data root beneath a folder, with q, k and v of random numbers; removed with the object.
class Files {
 public:
  Files(const std::string& folder, const JobSpec& spec);
  ~Files();
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string root() const { return folder_.string(); }
  std::string Path(const std::string& name) const { return folder_ / (name + ".npy"); }

  // Those of q, k and v, with the errors of bench::DropPages.
  absl::Status DropInputPages() const;

  // q, k and v, one after the other, each from its first byte to its last.
  void ReadInputs() const;

 private:
  const std::filesystem::path folder_;
};

// The job for the engine alone, its rows at their places.
OneShardJob EngineJob(const JobSpec& spec, Device& device, const Files& files);

// Files, and a service that has them in its data root. Specs of its jobs have the sizes of `sizes`.
class Place {
 public:
  Place(const std::string& folder, const JobSpec& sizes, int workers);

  const Files& files() const { return files_; }
  std::vector<pid_t> Processes() const { return cluster_->Processes(); }  // the service's

  // The workers read the files and write out.npy.
  void RunByReference(const JobSpec& spec) const;

  // This process reads the files, sends them, and writes out.npy: as the command does where the
  // service does not see the files.
  void RunSent(const JobSpec& spec) const;

 private:
  const Files files_;
  std::unique_ptr<testing::Cluster> cluster_;
};

}  // namespace hilbert_ring::bench
