// Runs one job of an encoder: tiles of slides in, embeddings out.
//
//   ASSIGN_OR_RETURN(const v1::Model model, RequestModel(channel, "slide_encoder"));
//   ASSIGN_OR_RETURN(EncodeJob job, JobOf(model));          // with its digest and config
//   job.slide_tiles = {10000};
//   job.outputs = {.states = {job.config.layers}, .pooling = Pooling::kMean};
//   const EncodeInputs inputs{.job = job, .tiles = tiles, .coordinates = coordinates};
//   absl::StatusOr<v1::Report> report = Encode("localhost:8001", inputs, {.rows = out});
//
// The call follows Attend (client/cpp/attend.h): admission first, coordinates before tiles, and
// rows or whole attempts again if the service requests them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/job_options.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/pooling.h"
#include "engine/spec/job_spec.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/encoder.pb.h"

namespace hilbert_ring::client {

struct EncodeJob {
  std::string model;
  std::string digest;                     // of the version to use; empty: the current one
  EncoderConfig config;                   // of that version
  std::vector<int64_t> slide_tiles;       // of each slide; slides follow each other
  DataType dtype = DataType::kFloat32;    // of tiles
  DataType compute = DataType::kFloat32;  // of products and attention: float32 or bfloat16
  EncoderOutputs outputs;

  int64_t tiles() const;
  int64_t tokens() const;  // tiles, and the class tokens if the model has them

  // [tokens (pooled: slides), embed_dim]; several states: [.., states, embed_dim].
  std::vector<int64_t> RowsShape() const;
  std::vector<int64_t> MapShape() const;  // [tokens], or [tokens, heads] by head
};

// Returns the model with its digest and config. FAILED_PRECONDITION: the model cannot be used, with
// the cause. INTERNAL: this client does not support the config.
absl::StatusOr<EncodeJob> JobOf(const v1::Model& model);

v1::EncodeSpec SpecOf(const EncodeJob& job);

struct EncodeInputs {
  EncodeJob job;
  std::span<const std::byte> tiles;  // [tiles, tile_dim] of dtype; must outlive the call
  // Fills coordinates [rows, 2], pixels, as AttendInputs::coordinates does. Needed if the model has
  // positions; also called once before anything is sent.
  std::function<void(int64_t first_row, std::span<double> values)> coordinates;
  // Called as AttendInputs::sent; may be empty.
  std::function<void(int64_t begin, int64_t end)> sent;
};

struct EncodeResults {
  std::span<std::byte> rows;           // float32, RowsShape()
  std::span<std::byte> attention_map;  // float32, MapShape(); empty: not wanted
};

// Returns INVALID_ARGUMENT or OUT_OF_RANGE, with field or row, value and limit. Causes: the model
// lacks a requested output; tiles have another size; coordinates are missing, outside of the grid,
// or at too few distinct places.
absl::Status CheckEncode(const EncodeInputs& inputs);

// Runs the job as Attend does. Errors of CheckEncode, and results of a wrong size, come before
// anything is sent.
absl::StatusOr<v1::Report> Encode(const std::string& server, const EncodeInputs& inputs,
                                  const EncodeResults& results, const JobOptions& options = {});
absl::StatusOr<v1::Report> Encode(const std::shared_ptr<grpc::Channel>& channel,
                                  const EncodeInputs& inputs, const EncodeResults& results,
                                  const JobOptions& options = {});

// Runs Encode on files of all inputs and all outputs except POOLED (client/cpp/by_reference.h); the
// workers read and write them. A result is used only if its output has no file.
absl::StatusOr<v1::Report> EncodeInFiles(const std::string& server, const EncodeInputs& inputs,
                                         const std::vector<v1::TensorFile>& files,
                                         const EncodeResults& results,
                                         const JobOptions& options = {});

}  // namespace hilbert_ring::client
