// Completion scripts, from the definition of the command line.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/usage.h"

namespace hilbert_ring::cli {
namespace {

struct Word {
  std::string name;  // "attend", "--spec"
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // choices, if they are known
};

struct Command {
  Word word;  // its values are its argument's
  std::vector<Word> options;
};

// Returns the values of an option or argument of type "a|b|c", without placeholders ("N,...");
// empty if any value is allowed.
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.find('|') == std::string::npos) return {};
  std::vector<std::string> values = absl::StrSplit(type, '|');
  std::erase_if(values, [](const std::string& value) {
    return std::ranges::any_of(value, [](char c) { return absl::ascii_isupper(c); });
  });
  return values;
}

std::vector<Word> OptionsOf(const CLI::App& app) {
  std::vector<Word> options;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      options.push_back({.name = "--" + name,
                         .help = option->get_description(),
                         .takes_value = option->get_items_expected_min() > 0,
                         .values = ValuesOf(*option)});
    }
  }
  return options;
}

// Global options are listed once, not with each command.
std::vector<Command> CommandsOf(const CLI::App& app, const std::vector<Word>& global) {
  std::vector<Command> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands.push_back({.word = {.name = command->get_name(), .help = command->get_description()},
                        .options = OptionsOf(*command)});
    std::erase_if(commands.back().options, [&global](const Word& option) {
      return std::ranges::find(global, option.name, &Word::name) != global.end();
    });
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) commands.back().word.values = ValuesOf(*option);
    }
  }
  return commands;
}

std::string Names(const std::vector<Word>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const Word& word) { *out += word.name; });
}

std::string BashValues(const std::vector<Word>& global, const std::vector<Command>& commands) {
  std::map<std::string, std::string> values;
  const auto add = [&values](const std::vector<Word>& options) {
    for (const Word& option : options) {
      if (option.takes_value) values[option.name] = absl::StrJoin(option.values, " ");
    }
  };
  add(global);
  for (const Command& command : commands) add(command.options);
  std::string cases;
  for (const auto& [option, list] : values) {
    absl::StrAppend(&cases, "    ", option, ") COMPREPLY=($(compgen -P \"$prefix\" -W \"", list,
                    "\" -- \"$current\")); return ;;\n");
  }
  return cases;
}

std::string Bash(const std::vector<Word>& global, const std::vector<Command>& commands) {
  std::string names, cases;
  for (const Command& command : commands) {
    absl::StrAppend(&names, names.empty() ? "" : " ", command.word.name);
    absl::StrAppend(&cases, "    ", command.word.name, ") options=\"", Names(command.options),
                    "\"; values=\"", absl::StrJoin(command.word.values, " "), "\" ;;\n");
  }
  return absl::StrCat(R"(# hilbert-ring completion for bash: source <(hilbert-ring completion bash)
_hilbert_ring() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local command="" options="" values="" prefix="" word
  if [[ "$current" == = ]]; then  # bash has taken --option=value apart
    current=""
  elif [[ "$previous" == = ]]; then
    previous="${COMP_WORDS[COMP_CWORD-2]}"
  elif [[ "$current" == --*=* ]]; then
    previous="${current%%=*}" prefix="${current%%=*}=" current="${current#*=}"
  fi
  case "$previous" in
)",
                      BashValues(global, commands), R"(  esac
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case " )",
                      names, R"( " in *" $word "*) command="$word"; break ;; esac
  done
  case "$command" in
    "") values=")",
                      names, R"(" ;;
)",
                      cases, R"(  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W ")",
                      Names(global), R"( $options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  fi
}
complete -o default -F _hilbert_ring hilbert-ring
)");
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string ZshOption(const Word& option) {
  const std::string help =
      absl::StrReplaceAll(option.help, {{"[", "("}, {"]", ")"}, {"\\", ""}, {":", ";"}});
  const std::string values =
      option.values.empty() ? "_files" : absl::StrCat("(", absl::StrJoin(option.values, " "), ")");
  // "=": the value follows it, or is the next word.
  return Quoted(option.takes_value ? absl::StrCat(option.name, "=[", help, "]:value:", values)
                                   : absl::StrCat(option.name, "[", help, "]"));
}

std::string Zsh(const std::vector<Word>& global, const std::vector<Command>& commands) {
  std::string names, cases;
  for (const Command& command : commands) {
    const std::string help = absl::StrReplaceAll(command.word.help, {{":", ";"}});
    absl::StrAppend(&names, " ", Quoted(absl::StrCat(command.word.name, ":", help)));
    absl::StrAppend(&cases, "    ", command.word.name, ") _arguments");
    for (const std::vector<Word>* options : {&global, &command.options}) {
      for (const Word& option : *options) absl::StrAppend(&cases, " ", ZshOption(option));
    }
    if (const auto& values = command.word.values; !values.empty()) {
      absl::StrAppend(&cases, " ",
                      Quoted(absl::StrCat("1:value:(", absl::StrJoin(values, " "), ")")));
    }
    absl::StrAppend(&cases, " ;;\n");
  }
  std::string options;
  for (const Word& option : global) absl::StrAppend(&options, " ", ZshOption(option));
  return absl::StrCat("#compdef hilbert-ring\n# source <(hilbert-ring completion zsh)\n",
                      "_hilbert_ring() {\n  local -a commands=(", names, ")\n",
                      "  local line state\n  _arguments -C", options,
                      " '1: :->command' '*::argument:->arguments'\n  case $state in\n"
                      "    command) _describe command commands; return ;;\n  esac\n"
                      "  case $line[1] in\n",
                      cases, "  esac\n}\ncompdef _hilbert_ring hilbert-ring\n");
}

std::string FishOption(const std::string& condition, const Word& option) {
  const std::string values =
      option.values.empty() ? ""
                            : absl::StrCat(" -f -a ", Quoted(absl::StrJoin(option.values, " ")));
  return absl::StrCat("complete -c hilbert-ring", condition, " -l ", option.name.substr(2),
                      option.takes_value ? " -r" : "", values, " -d ", Quoted(option.help), "\n");
}

std::string Fish(const std::vector<Word>& global, const std::vector<Command>& commands) {
  std::string text = "# hilbert-ring completion fish | source\n";
  for (const Word& option : global) absl::StrAppend(&text, FishOption("", option));
  for (const Command& command : commands) {
    absl::StrAppend(&text, "complete -c hilbert-ring -n __fish_use_subcommand -f -a ",
                    command.word.name, " -d ", Quoted(command.word.help), "\n");
    const std::string seen =
        absl::StrCat(" -n '__fish_seen_subcommand_from ", command.word.name, "'");
    for (const Word& option : command.options) absl::StrAppend(&text, FishOption(seen, option));
    if (const auto& values = command.word.values; !values.empty()) {
      absl::StrAppend(&text, "complete -c hilbert-ring", seen, " -f -a ",
                      Quoted(absl::StrJoin(values, " ")), "\n");
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell) {
  const std::vector<Word> global = OptionsOf(app);
  const std::vector<Command> commands = CommandsOf(app, global);
  if (shell == "bash") return Bash(global, commands);
  if (shell == "zsh") return Zsh(global, commands);
  if (shell == "fish") return Fish(global, commands);
  return absl::InvalidArgumentError(
      absl::StrCat("shell is ", shell, ", expected bash, zsh or fish"));
}

}  // namespace hilbert_ring::cli
