// Kinds of settings that both processes have.
#pragma once

#include <cstdint>
#include <string>

#include "server/process/settings.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace hilbert_ring::server {

// CLI::Range lets what is not a number pass, as that is neither less nor more.
CLI::Validator Between(double least, double most);

// In seconds.
void AddDuration(CLI::App& app, const std::string& flag, Milliseconds& value,
                 const std::string& help);

// With or without a suffix.
CLI::Option* AddBytes(CLI::App& app, const std::string& flag, int64_t& value,
                      const std::string& help);

CLI::Option* AddCpuInstructions(CLI::App& app, std::string& value);
void AddDevice(CLI::App& app, DeviceSettings& device);

void AddOverlapExchange(CLI::App& app, bool& value);

// What the streams of a host may be, at coordinator and worker.
void AddCallLimits(CLI::App& app, int& calls_per_peer, Milliseconds& open_timeout);

void AddLogging(CLI::App& app, std::string& level, std::string& format);

}  // namespace hilbert_ring::server
