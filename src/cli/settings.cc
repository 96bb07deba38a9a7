#include "cli/settings.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/suggest.h"
#include "datasets/yaml_config.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void refuse(const std::string& what, const std::string& where, const std::string& next) {
  throw Error(ErrorCode::usage, ErrorSubject::general, what, {.where = where, .next = next});
}

// hayfork.yaml of this folder or of the nearest one above it, not past the git root; outside a repository, of this
// folder alone.
fs::path project_file() {
  std::error_code ignored;
  fs::path folder = fs::current_path(ignored);
  if (folder.empty()) return {};
  fs::path root = folder;
  while (!root.empty() && !fs::exists(root / ".git", ignored))
    root = root == root.parent_path() ? fs::path() : root.parent_path();
  for (;; folder = folder.parent_path()) {
    if (fs::exists(folder / "hayfork.yaml", ignored)) return folder / "hayfork.yaml";
    if (root.empty() || folder == root) return {};
  }
}

std::vector<std::string> words_of(const json& value, const std::string& key, const std::string& path) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_boolean()) return {value.get<bool>() ? "true" : "false"};
  if (value.is_number()) return {value.dump()};
  if (value.is_array()) {
    std::vector<std::string> words;
    for (const json& item : value) {
      if (item.is_structured()) refuse(fmt::format("{}: a list of plain values is wanted", key), path, "");
      for (std::string& word : words_of(item, key, path)) words.push_back(std::move(word));
    }
    return words;
  }
  refuse(fmt::format("{}: want a value or a list", key), path, "");
}

// Flags of every verb, by verb; "" holds all of them.
const std::map<std::string, std::set<std::string>>& known_flags() {
  static const auto known = [] {
    std::map<std::string, std::set<std::string>> all;
    for (const Command& command : commands()) {
      Flags flags;
      const Action keep_alive = command.declare(flags);
      const std::string verb = command.path.substr(0, command.path.find(' '));
      for (const auto& info : flags.all()) {
        if (!info->configurable) continue;
        all[verb].insert(info->name);
        all[""].insert(info->name);
        if (info->alias.empty()) continue;
        all[verb].insert(info->alias);
        all[""].insert(info->alias);
      }
    }
    return all;
  }();
  return known;
}

void check_known(const std::string& scope, const std::string& key, const std::string& path) {
  const std::set<std::string>& known = known_flags().at(scope);
  if (known.contains(key)) return;
  const std::vector<std::string> words(known.begin(), known.end());
  refuse(fmt::format("unknown key \"{}\"", scope.empty() ? key : scope + ": " + key), path,
         did_you_mean(key, words, "hayfork config lists what can be set"));
}

}  // namespace

std::string variable_of(std::string_view flag) {
  std::string name = "HAYFORK_";
  for (const char c : flag) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

fs::path config_folder() {
  if (const std::string xdg = environment("XDG_CONFIG_HOME"); !xdg.empty()) return fs::path(xdg) / "hayfork";
  const std::string home = environment("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".config" / "hayfork";
}

fs::path cache_folder() {
  if (const std::string own = environment("HAYFORK_CACHE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return fs::path(xdg) / "hayfork";
  const std::string home = environment("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "hayfork";
}

Settings Settings::load() {
  Settings settings;
  std::vector<fs::path> paths = {project_file()};
  if (const fs::path folder = config_folder(); !folder.empty()) paths.push_back(folder / "config.yaml");
  for (const fs::path& path : paths) {
    std::error_code ignored;
    if (path.empty() || !fs::is_regular_file(path, ignored)) continue;
    File file{path.string(), {}};
    const json root = datasets::load_yaml(path, {.typed = false});  // plain values stay the text a flag reads
    if (root.is_null()) continue;
    if (!root.is_object()) refuse("a configuration file is a mapping of flags to values", file.path, "db: runs.db");
    for (const auto& [name, value] : root.items()) {
      const std::string key = fold_underscores(name);
      if (value.is_null()) continue;
      if (!value.is_object()) {
        check_known("", key, file.path);
        file.values[key] = words_of(value, key, file.path);
        continue;
      }
      if (!known_flags().contains(key) || key.empty()) {
        refuse(fmt::format("unknown verb \"{}\"", name), file.path,
               did_you_mean(key, verbs(), "hayfork help lists them"));
      }
      for (const auto& [inner_name, inner] : value.items()) {
        const std::string inner_key = fold_underscores(inner_name);
        check_known(key, inner_key, file.path);
        if (!inner.is_null()) file.values[key + "." + inner_key] = words_of(inner, inner_key, file.path);
      }
    }
    settings.files_.push_back(file.path);
    settings.contents_.push_back(std::move(file));
  }
  return settings;
}

std::optional<Setting> Settings::find(const std::string& verb, const FlagInfo& flag) const {
  for (const std::string& name : {flag.name, flag.alias}) {
    const std::string value = name.empty() ? "" : environment(variable_of(name));
    if (!value.empty()) return Setting{{value}, "environment " + variable_of(name)};
  }
  for (const File& file : contents_) {
    for (const std::string& key : {verb + "." + flag.name, flag.name, verb + "." + flag.alias, flag.alias}) {
      if (const auto found = file.values.find(key); found != file.values.end())
        return Setting{found->second, file.path};
    }
  }
  return std::nullopt;
}

void Settings::apply(const std::string& verb, Flags& flags) const {
  for (const auto& info : flags.all()) {
    if (!info->configurable || flags.given(info->name)) continue;
    const std::optional<Setting> setting = find(verb, *info);
    if (!setting) continue;
    try {
      flags.set(info->name, setting->values);
    } catch (const Error& error) {
      ErrorDetail detail = error.detail();
      detail.where = setting->origin;
      throw Error(error.code(), error.subject(), error.summary(), detail);
    }
  }
}

}  // namespace hayfork::cli
