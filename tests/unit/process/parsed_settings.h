#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {

template <typename Settings>
std::pair<std::variant<Settings, int>, std::string> ParseWith(
    std::variant<Settings, int> (*parse)(int, char**), std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStderr();
  auto parsed = parse(static_cast<int>(argv.size()), argv.data());
  return {std::move(parsed), ::testing::internal::GetCapturedStderr()};
}

inline auto Parse(std::vector<std::string> arguments) {
  return ParseWith(ParseCoordinatorSettings, std::move(arguments)).first;
}

inline auto ParseWorker(std::vector<std::string> arguments) {
  return ParseWith(ParseWorkerSettings, std::move(arguments)).first;
}

inline CoordinatorSettings Parsed(std::vector<std::string> arguments) {
  auto [parsed, message] = ParseWith(ParseCoordinatorSettings, std::move(arguments));
  const auto* settings = std::get_if<CoordinatorSettings>(&parsed);
  EXPECT_NE(settings, nullptr) << message;
  return settings != nullptr ? *settings : CoordinatorSettings();
}

inline std::pair<int, std::string> Refused(std::vector<std::string> arguments) {
  const auto [parsed, message] = ParseWith(ParseCoordinatorSettings, std::move(arguments));
  const int* const code = std::get_if<int>(&parsed);
  return {code == nullptr ? 0 : *code, message};
}

inline std::string RefusalOf(const std::vector<std::string>& arguments) {
  auto [code, message] = Refused(arguments);
  EXPECT_EQ(code, 2) << message;
  return message;
}

class Settings : public ::testing::Test {
 protected:
  void Set(const std::string& variable, const std::string& value) {
    before_.try_emplace(variable, Value(variable));
    setenv(variable.c_str(), value.c_str(), 1);
  }

  void Clear(const std::string& variable) { unsetenv(variable.c_str()); }

  void TearDown() override {
    for (const auto& [variable, value] : before_) {
      if (value.empty()) {
        unsetenv(variable.c_str());
      } else {
        setenv(variable.c_str(), value.c_str(), 1);
      }
    }
  }

 private:
  static std::string Value(const std::string& variable) {
    const char* const value = std::getenv(variable.c_str());
    return value == nullptr ? "" : value;
  }

  std::map<std::string, std::string> before_;
};

}  // namespace hilbert_ring::server
