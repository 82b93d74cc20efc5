#pragma once

#include <string>

#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

std::string ModelsOfCases();  // for --model-dir

EncodeInputs InputsOf(const EncoderCase& golden);

void CheckCase(const Cluster& cluster, const std::string& name);
void CheckEveryCase(const Cluster& cluster);

}  // namespace hilbert_ring::testing
