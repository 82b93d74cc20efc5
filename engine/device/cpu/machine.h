// What the process may use of the machine it runs on (Linux).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hilbert_ring {

// "AMD EPYC", or "CPU" where the system does not say.
std::string ProcessorName();

// Processors of the affinity mask, or fewer where a control group's quota is less; at least 1.
int UsableThreads();

// Of one core; nothing where the system does not say.
std::optional<int64_t> SecondLevelCacheBytes();

// Whether processor and system know the instructions on pairs of bfloat16 in 512-bit vectors.
bool HasAvx512BFloat16();

// Whether they take more products a second than those on float32. AMD's do: twice as many on a
// Zen 5. Intel's do not: a Xeon (5th generation) takes half as many of them, of twice the products,
// and what comes with them makes attention 0.58 times as fast as float32's.
bool BFloat16PairsAreFaster();

// Whether processor and system have products of bfloat16 by tiles (AMX). The first call asks the
// system to let this process, with all of its threads, use tiles; without that they are illegal.
bool AllowAmxBFloat16();

// Memory of the machine, or of the control group where that is less; 0 when not known.
int64_t UsableMemoryBytes();

}  // namespace hilbert_ring
