// The golden cases of encoders through a service.
#pragma once

#include <string>

#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

std::string ModelsOfCases();  // for --model-dir

EncodeInputs InputsOf(const EncoderCase& golden);

// Rows, pooled vectors and maps of a case are those of the definition.
void CheckCase(const Cluster& cluster, const std::string& name);
// Those of every case, and rows in bfloat16 as near as those of PyTorch's autocast.
void CheckEveryCase(const Cluster& cluster);

}  // namespace hilbert_ring::testing
