// One job of an encoder, as a client sees it: tiles of slides in, embeddings out.
//
//   ASSIGN_OR_RETURN(const v1::Model model, RequestModel(channel, "slide_encoder"));
//   ASSIGN_OR_RETURN(EncodeJob job, JobOf(model));          // which version, and what it is
//   job.slide_tiles = {10000};
//   job.outputs = {.states = {job.config.layers}, .pooling = Pooling::kMean};
//   const EncodeInputs inputs{.job = job, .tiles = tiles, .coordinates = coordinates};
//   absl::StatusOr<v1::Report> report = Encode("localhost:8001", inputs, {.rows = out});
//
// The call goes as Attend does (client/cpp/attend.h): admission first, coordinates before tiles,
// rows sent again and whole attempts made again where the service asks for it.
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
  std::string model;                 // its name
  std::string digest;                // of the version that is meant; empty: the one that is there
  EncoderConfig config;              // of that version
  std::vector<int64_t> slide_tiles;  // of each slide; slides follow each other
  DataType dtype = DataType::kFloat32;    // of tiles
  DataType compute = DataType::kFloat32;  // of products and attention: float32 or bfloat16
  EncoderOutputs outputs;

  int64_t tiles() const;
  int64_t tokens() const;  // tiles, and the class tokens of models that have one

  // [tokens, embed_dim], or of pooled slides [slides, embed_dim]; with several states [.., states,
  // embed_dim].
  std::vector<int64_t> RowsShape() const;
  std::vector<int64_t> MapShape() const;  // [tokens], or [tokens, heads] by head
};

// The job's model, its digest and its config. FAILED_PRECONDITION: the model cannot be used, and
// why; INTERNAL: a config that this client does not know.
absl::StatusOr<EncodeJob> JobOf(const v1::Model& model);

// The job as the service takes it.
v1::EncodeSpec SpecOf(const EncodeJob& job);

struct EncodeInputs {
  EncodeJob job;
  std::span<const std::byte> tiles;  // [tiles, tile_dim] of dtype; outlive the call
  // Fills coordinates [rows, 2], pixels, from first_row on. Needed where the model has positions;
  // called as AttendInputs::coordinates is, and once before anything is sent.
  std::function<void(int64_t first_row, std::span<double> values)> coordinates;
  // Told, if set, that bytes [begin, end) of the tiles were sent, as AttendInputs::sent is.
  std::function<void(int64_t begin, int64_t end)> sent;
};

struct EncodeResults {
  std::span<std::byte> rows;           // float32, RowsShape()
  std::span<std::byte> attention_map;  // float32, MapShape(); empty: not wanted
};

// OK, or INVALID_ARGUMENT and OUT_OF_RANGE, naming field or row, value and limit: what the model
// does not have, tiles of another size, coordinates that are missing, outside of the grid, or of
// few distinct places.
absl::Status CheckEncode(const EncodeInputs& inputs);

// OK when the results have the sizes that the job gives them. INVALID_ARGUMENT, naming the result,
// otherwise.
absl::Status CheckResults(const EncodeJob& job, const EncodeResults& results);

// As of Attend; errors of CheckEncode and CheckResults before anything is sent.
absl::StatusOr<v1::Report> Encode(const std::string& server, const EncodeInputs& inputs,
                                  const EncodeResults& results, const JobOptions& options = {});
absl::StatusOr<v1::Report> Encode(const std::shared_ptr<grpc::Channel>& channel,
                                  const EncodeInputs& inputs, const EncodeResults& results,
                                  const JobOptions& options = {});

// As Encode, of files that hold all inputs and all outputs but POOLED (client/cpp/by_reference.h):
// the workers read and write them. Of the results those alone are used that are in no file.
absl::StatusOr<v1::Report> EncodeInFiles(const std::string& server, const EncodeInputs& inputs,
                                         const std::vector<v1::TensorFile>& files,
                                         const EncodeResults& results,
                                         const JobOptions& options = {});

}  // namespace hilbert_ring::client
