// A slide pipeline's file for `encode`: the command `slide` writes it as .npy files into a folder
// of its own.
//
//   ASSIGN_OR_RETURN(SlideFiles files, SlideFiles::Create(command.slide));
//   const int code = files.Write(global, command.slide, tile_size);
//   if (code != kExitOk) return code;
//   ... client::OpenEncode({.tiles = files.tiles(), .coords = files.coords()}, job) ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"

namespace hilbert_ring::cli {

// Removes the folder at the end. Without --slide there is no folder.
class SlideFiles {
 public:
  static absl::StatusOr<SlideFiles> Create(const SlideFlags& flags);
  SlideFiles(SlideFiles&& other) noexcept;
  SlideFiles& operator=(SlideFiles&&) = delete;
  ~SlideFiles();

  // Returns the exit code; errors were printed. tile_size: pixels of a side in the model; nothing:
  // without coordinates. Catches interrupts.
  int Write(const GlobalOptions& global, const SlideFlags& flags, std::optional<int64_t> tile_size);

  std::string tiles() const;
  std::string coords() const;

 private:
  explicit SlideFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  bool has_coords_ = false;
};

}  // namespace hilbert_ring::cli
