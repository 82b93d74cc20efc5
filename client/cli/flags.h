// Flags of commands that run jobs, and their values. All must outlive app.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"

namespace hilbert_ring::cli {

CLI::Option* AddFile(CLI::App& app, const char* flag, std::string& path, const char* help);

// Rejects "" with the words "is empty, EXPECTED".
CLI::Validator NotEmpty(const char* expected);

template <typename Integer>
CLI::Validator From1To(Integer most) {
  return CLI::Range(Integer{1}, most).description("");
}

// Includes AddAttemptFlags.
void AddCallFlags(CLI::App& app, CallFlags& flags);

void AddAttemptFlags(CLI::App& app, CallFlags& flags);

void AddReferenceFlags(CLI::App& app, ReferenceFlags& flags);

void AddStreamFlags(CLI::App& app, StreamFlags& flags);

void AddEncodeFlags(CLI::App& app, EncodeCommand& command);

}  // namespace hilbert_ring::cli
