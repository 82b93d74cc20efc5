#include "server/process/setting_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/process/regular_file.h"
#include "wire/flag_values.h"

namespace hilbert_ring::server {

CLI::Validator Between(double least, double most) {
  const std::string range = CLI::Range(least, most).get_description();
  return {[least, most, range](const std::string& given) {
            double value = 0;
            const bool number = CLI::detail::lexical_cast(given, value);
            return number && value >= least && value <= most
                       ? std::string()
                       : absl::StrCat("value ", given, " is no ", range);
          },
          range};
}

void AddDuration(CLI::App& app, const std::string& flag, Milliseconds& value,
                 const std::string& help, double least) {
  const auto seconds = static_cast<double>(value.count()) / 1000;
  app.add_option_function<double>(
         flag, [&value](double given) { value = Milliseconds(static_cast<int64_t>(given * 1000)); },
         help + ", in seconds")
      ->check(Between(least, 1e9))
      ->default_str(CLI::detail::to_string(seconds));
}

CLI::Validator SmallRegularFile() {
  const auto wrong = [](const std::string& path) {
    const auto text = ReadRegularFile(path, kMostConfigBytes);
    return text.ok() ? std::string() : absl::StrCat(path, " ", text.status().message());
  };
  return CLI::Validator(wrong, "").application_index(0);  // only the last of several
}

CLI::Option* AddBytes(CLI::App& app, const std::string& flag, int64_t& value,
                      const std::string& help) {
  return app
      .add_option_function<uint64_t>(
          flag, [&value](uint64_t given) { value = static_cast<int64_t>(given); },
          help + " (bytes, or with a suffix: 512MiB, 16GiB)")
      ->transform(CLI::Validator(wire::WrongByteCount, "SIZE [b, kb(=1024b), ...]"));
}

CLI::Validator AtLeastBytes(uint64_t least) {
  return {[least](const std::string& given) {
            uint64_t bytes = 0;
            return CLI::detail::lexical_cast(given, bytes) && bytes >= least
                       ? std::string()
                       : absl::StrCat(given, ", must be at least ", least, " bytes");
          },
          ""};
}

void RequireExactValue(CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_expected_min() == 0 || type.starts_with("BOOLEAN")) {
    option.check(CLI::Validator(wire::WrongTruthValue, ""));
  } else if (type.starts_with("INT")) {
    option.transform(CLI::Validator(wire::WrongWholeNumber, ""));
  } else if (type.starts_with("FLOAT")) {
    option.check(CLI::Validator(wire::WrongNumber, ""));
  }
}

void CheckHaveValues(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string empty = absl::StrCat(option->get_name(), "=");
    if (std::ranges::find(arguments, empty) == arguments.end()) continue;
    throw CLI::ValidationError(option->get_name(), "has no value");
  }
}

CLI::Option* AddCpuInstructions(CLI::App& app, std::string& value) {
  return app
      .add_option("--cpu-instructions", value,
                  "instruction set of the workers' kernels; not given: the best of the machine")
      ->check(CLI::IsMember({"portable", "ssse3", "sse4", "avx2", "avx512", "avx512-bf16",
                             "amx-bf16", "neon", "bf16-emulated", "amx-bf16-emulated"}));
}

void AddDevice(CLI::App& app, std::string& device) {
  app.add_option("--device", device,
                 "device of workers: auto (a GPU if there is one, else the CPU; spawned workers "
                 "spread over the GPUs), auto:N (that GPU), cpu, or cuda:N")
      ->check([](const std::string& given) {
        const bool known = given == "auto" || given == "cpu" || GpuOrdinal(given).has_value();
        return known ? std::string() : given + ", must be auto, auto:N, cpu or cuda:N";
      });
}

void AddGpu(CLI::App& app, DeviceSettings& device) {
  app.add_option("--gpu-memory-fraction", device.gpu_memory_fraction,
                 "fraction of a GPU's memory for the jobs of its workers")
      ->check(Between(0.01, 1.0));
  app.add_option("--attention-kernel", device.attention_kernel,
                 "attention kernel of a GPU: cudnn, native (our own), or auto (cudnn for shapes at "
                 "which it was faster)")
      ->check(CLI::IsMember({"auto", "cudnn", "native"}));
}

void AddOpenTimeout(CLI::App& app, Milliseconds& open_timeout) {
  AddDuration(app, "--open-timeout", open_timeout, "longest wait for a stream's first message");
}

void AddLogging(CLI::App& app, std::string& level, std::string& format) {
  app.add_option("--log-level", level,
                 "least level of log lines: trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  app.add_option("--log-format", format, "format of log lines: text, or json with an object a line")
      ->check(CLI::IsMember({"text", "json"}));
}

std::optional<int> GpuOrdinal(const std::string& device) {
  if (!device.starts_with("cuda:") && !device.starts_with("auto:")) return std::nullopt;
  int ordinal = -1;
  const char* const end = device.data() + device.size();
  const auto parsed = std::from_chars(device.data() + device.find(':') + 1, end, ordinal);
  if (parsed.ec != std::errc() || parsed.ptr != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

}  // namespace hilbert_ring::server
