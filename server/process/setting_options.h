// Kinds of settings that both processes have.
#pragma once

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

// CLI::Range lets what is not a number pass, as that is neither less nor more.
CLI::Validator Between(double least, double most);

inline constexpr double kLeastSeconds = 0.001;
// Heartbeats come four times within a worker's timeout, and the silent are looked for eight times.
inline constexpr double kLeastWorkerTimeoutSeconds = 0.1;

// In seconds, `least` or more.
void AddDuration(CLI::App& app, const std::string& flag, Milliseconds& value,
                 const std::string& help, double least = kLeastSeconds);

// Of an option that names a file to be read: a regular one, of at most 1 MiB.
CLI::Validator SmallRegularFile();

// Takes decimal numbers and the words true and false alone for an option of such a type, since
// CLI11 also takes octal and hexadecimal digits, and 1x for true.
void RequireExactValue(CLI::Option& option);

// Throws CLI::ParseError: --flag= without a value, for which CLI11 takes the next argument, or
// true.
void CheckHaveValues(const CLI::App& app, const std::vector<std::string>& arguments);

// With or without a suffix.
CLI::Option* AddBytes(CLI::App& app, const std::string& flag, int64_t& value,
                      const std::string& help);

// Of a number that AddBytes has read.
CLI::Validator AtLeastBytes(uint64_t least);

CLI::Option* AddCpuInstructions(CLI::App& app, std::string& value);
void AddDevice(CLI::App& app, std::string& device);
void AddGpu(CLI::App& app, DeviceSettings& device);

void AddOpenTimeout(CLI::App& app, Milliseconds& open_timeout);

void AddLogging(CLI::App& app, std::string& level, std::string& format);

}  // namespace hilbert_ring::server
