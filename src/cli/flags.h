// A verb's flags and arguments, declared once: parsing into plain variables, help texts, completion, environment and
// configuration files all read this list. The one place that knows CLI11.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::cli {

struct FlagInfo {
  std::string name;    // "num-fewshot"; for an argument "RUN"
  char letter = 0;     // 'o': also -o
  std::string value;   // "N", "DIR"; empty for a switch
  std::string help;    // one sentence or two
  std::string group;   // heading in the help text
  std::string preset;  // the default as it would be written; empty: none, or the help says it
  std::string alias;   // another spelling, "words"; gives way to a flag of that name
  std::vector<std::string> choices;
  std::string kind;  // "file", "dir", "run", "task", "model": what completion offers
  bool argument = false, required = false, repeated = false;
  bool configurable = true;  // may come from the environment or a configuration file
};

class Flags {
 public:
  Flags();
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  void group(std::string name);  // heading for what is declared next
  // Declarations. `name` is "model" or "o,format". Variables must outlive the Flags; their values are the defaults.
  // Values that cannot be read throw Error(usage) naming the flag. Each returns its info to add to.
  FlagInfo& text(const std::string& name, std::string& to, const std::string& value, const std::string& help);
  FlagInfo& toggle(const std::string& name, bool& to, const std::string& help);
  FlagInfo& choice(const std::string& name, std::string& to, std::vector<std::string> choices, const std::string& help);
  FlagInfo& on_off(const std::string& name, bool& to, const std::string& help);
  FlagInfo& count(const std::string& name, int64_t& to, const std::string& value, const std::string& help);
  FlagInfo& count(const std::string& name, int32_t& to, const std::string& value, const std::string& help);
  FlagInfo& count(const std::string& name, std::optional<int64_t>& to, const std::string& value,
                  const std::string& help);
  FlagInfo& real(const std::string& name, double& to, const std::string& value, const std::string& help);
  FlagInfo& counts(const std::string& name, std::vector<int64_t>& to, const std::string& value,
                   const std::string& help);
  FlagInfo& numbers(const std::string& name, std::vector<double>& to, const std::string& value,
                    const std::string& help);
  // Given several times, or once with commas when `commas`.
  FlagInfo& list(const std::string& name, std::vector<std::string>& to, const std::string& value,
                 const std::string& help, bool commas = true);
  FlagInfo& argument(const std::string& name, std::string& to, const std::string& help);
  FlagInfo& arguments(const std::string& name, std::vector<std::string>& to, const std::string& help);
  // The general form behind all of these.
  FlagInfo& declare(const std::string& name, const std::string& value, const std::string& help,
                    std::function<void(const std::vector<std::string>&)> set);

  // Reads the command line behind the verb. Throws Error(usage): unknown flag (with the nearest), missing value,
  // too many arguments. Required flags are checked by check_required(), after settings were applied.
  void parse(std::vector<std::string> words);
  bool given(std::string_view name) const;  // by parse() or set()
  // A value from the environment or a file. Throws Error(usage).
  void set(const std::string& name, const std::vector<std::string>& values);
  void check_required(const std::string& verb) const;

  std::span<const std::unique_ptr<FlagInfo>> all() const { return infos_; }
  const FlagInfo* find(std::string_view name) const;  // by its long name
  std::vector<std::string> names() const;             // "--model", … for suggestions

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::vector<std::unique_ptr<FlagInfo>> infos_;
  std::string group_ = "Options";
};

// "num_fewshot" → "num-fewshot".
std::string fold_underscores(std::string name);

}  // namespace hayfork::cli
