// The fuzz targets: functions that end the process when an input breaks an invariant.
//
// CMake builds each target twice: by clang into a program driven by libFuzzer (libfuzzer_entry.cc),
// and by any compiler into fuzz_replay_test, which runs the seed corpora (corpus/NAME) and seeded
// mutations of these.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace hilbert_ring::fuzz {

using Bytes = std::span<const uint8_t>;

void AttendMessages(Bytes bytes);
void EncoderConfigJson(Bytes input);
void JobSpecJson(Bytes input);
void NpyHeader(Bytes input);
void PayloadMessage(Bytes input);
void PlanOfSpec(Bytes bytes);
void Safetensors(Bytes input);

// Silences protobuf, which prints a line for every name that is no UTF-8.
void SilenceProtobuf();

void Require(bool holds, std::string_view what);

}  // namespace hilbert_ring::fuzz
