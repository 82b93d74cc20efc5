// What a valid spec says and its writer seldom means.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// A sentence each, which names field, value and what comes of it. spec: valid.
std::vector<std::string> NotesOn(const JobSpec& spec);

}  // namespace hilbert_ring
