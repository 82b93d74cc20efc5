// The machine's resources that the process may use (Linux).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hilbert_ring {

// "AMD EPYC", or "CPU" if unknown.
std::string ProcessorName();

// Processors of the affinity mask, or of a control group's smaller quota; at least 1.
int UsableThreads();

// Bytes of one core's cache; nullopt if unknown.
std::optional<int64_t> SecondLevelCacheBytes();

// Returns whether processor and system support instructions on pairs of bfloat16 in 512-bit
// vectors.
bool HasAvx512BFloat16();

// Returns whether they make more products a second than float32's. AMD's do: twice as many on a Zen
// 5. Intel's do not: a Xeon (5th generation) runs half as many, of two products each, and with the
// work around them attention is 0.58 times as fast.
bool BFloat16PairsAreFaster();

// Returns whether processor and system support tile products of bfloat16 (AMX). The first call
// requests permission for all threads of the process, without which tiles are illegal.
bool AllowAmxBFloat16();

// Memory of the machine, or of the control group if less; 0 if unknown.
int64_t UsableMemoryBytes();

}  // namespace hilbert_ring
