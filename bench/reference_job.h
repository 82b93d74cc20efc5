// The job of reference_bench in its variants: by the engine alone, with tensors passed by path, and
// with tensors sent.
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

// A folder with q, k and v of random numbers, used as data root. Removed with the object.
class Files {
 public:
  Files(const std::string& folder, const JobSpec& spec);
  ~Files();
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string root() const { return folder_.string(); }
  std::string Path(const std::string& name) const { return folder_ / (name + ".npy"); }

  absl::Status DropInputPages() const;

  void ReadInputs() const;

 private:
  const std::filesystem::path folder_;
};

OneShardJob EngineJob(const JobSpec& spec, Device& device, const Files& files);

// Files, and a service with them as data root. Its jobs have the sizes of `sizes`.
class Place {
 public:
  Place(const std::string& folder, const JobSpec& sizes, int workers);

  const Files& files() const { return files_; }
  std::vector<pid_t> Processes() const { return cluster_->Processes(); }  // the service's

  // The workers read the files and write out.npy.
  void RunByReference(const JobSpec& spec) const;

  // This process reads the files, sends them, and writes out.npy.
  void RunSent(const JobSpec& spec) const;

 private:
  const Files files_;
  std::unique_ptr<testing::Cluster> cluster_;
};

}  // namespace hilbert_ring::bench
