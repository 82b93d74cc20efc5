// A slide pipeline's file for `encode`. The Python package's command `slide` writes it as .npy
// files into a temporary folder.
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

namespace CLI {
class App;
}

namespace hilbert_ring::cli {

inline constexpr char kSlideLayouts[] = "atlaspatch|trident|raw2features|stamp|slide2vec|clam";

// Adds --slide and its options. flags must outlive app.
void AddSlideFlags(CLI::App& app, SlideFlags& flags);

// Its destructor removes the folder. Without --slide there is no folder.
class SlideFiles {
 public:
  static absl::StatusOr<SlideFiles> Create(const SlideFlags& flags);
  SlideFiles(SlideFiles&& other) noexcept;
  SlideFiles& operator=(SlideFiles&&) = delete;
  ~SlideFiles();

  // Prints errors, and returns the exit code. tile_size: pixels of a tile's side in the model;
  // nothing if the model has no coordinates. An interrupt ends the command `slide`, and is an
  // error.
  int Write(const GlobalOptions& global, const SlideFlags& flags, std::optional<int64_t> tile_size);

  std::string tiles() const;
  std::string coords() const;

 private:
  explicit SlideFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  bool has_coords_ = false;
};

}  // namespace hilbert_ring::cli
