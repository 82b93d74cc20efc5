// Warns of settings that are valid but seldom intended.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Each sentence names field, value and effect. The spec is valid.
std::vector<std::string> NotesOn(const JobSpec& spec);

}  // namespace hilbert_ring
