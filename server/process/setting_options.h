// Kinds of settings of both processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/process/settings.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace hilbert_ring::server {

// Unlike CLI::Range, refuses values that are not numbers.
CLI::Validator Between(double least, double most);

inline constexpr double kLeastSeconds = 0.001;
// A worker's timeout has four heartbeats and eight checks of silence.
inline constexpr double kLeastWorkerTimeoutSeconds = 0.1;

void AddDuration(CLI::App& app, const std::string& flag, Milliseconds& value,
                 const std::string& help, double least = kLeastSeconds);

inline constexpr size_t kMostConfigBytes = 1 << 20;
CLI::Validator SmallRegularFile();  // of at most kMostConfigBytes

// Restricts an option to decimal numbers, or to true and false: CLI11 also accepts octal and
// hexadecimal digits, and 1x for true.
void RequireExactValue(CLI::Option& option);

// Throws CLI::ParseError for --flag= without a value: CLI11 would take the next argument, or true.
void CheckHaveValues(const CLI::App& app, const std::vector<std::string>& arguments);

CLI::Option* AddBytes(CLI::App& app, const std::string& flag, int64_t& value,
                      const std::string& help);

CLI::Validator AtLeastBytes(uint64_t least);

CLI::Option* AddCpuInstructions(CLI::App& app, std::string& value);
void AddDevice(CLI::App& app, std::string& device);
void AddGpu(CLI::App& app, DeviceSettings& device);

void AddOpenTimeout(CLI::App& app, Milliseconds& open_timeout);

void AddLogging(CLI::App& app, std::string& level, std::string& format);

}  // namespace hilbert_ring::server
