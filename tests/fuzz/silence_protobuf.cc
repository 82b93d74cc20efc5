#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {

void SilenceProtobuf() {
  static const bool silent = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  static_cast<void>(silent);
}

}  // namespace hilbert_ring::fuzz
