// Where a flag's value comes from: flag > HAYFORK_<FLAG> > hayfork.yaml (from here up to the git root) > the user's
// config.yaml > default. A configuration file holds flags without their dashes, for every verb that has them, or under
// a verb's name for that verb alone:
//     db: results/runs.db
//     run: {dtype: f32, samples: 10}
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace hayfork::cli {

struct Setting {
  std::vector<std::string> values;
  std::string origin;  // "environment HAYFORK_DB", "hayfork.yaml"
};

class Settings {
 public:
  // Reads the files. Throws: usage (unknown key with the nearest, wrong type), for a broken file as well.
  static Settings load();
  // What is set for a flag outside the command line.
  std::optional<Setting> find(const std::string& verb, const FlagInfo& flag) const;
  // Fills every configurable flag that the command line did not give. Throws: usage, naming the origin.
  void apply(const std::string& verb, Flags& flags) const;
  const std::vector<std::string>& files() const { return files_; }  // those that were read, nearest first

 private:
  struct File {
    std::string path;
    std::map<std::string, std::vector<std::string>> values;  // "db", "run.dtype"
  };
  std::vector<File> contents_;
  std::vector<std::string> files_;
};

std::string variable_of(std::string_view flag);  // "num-fewshot" → "HAYFORK_NUM_FEWSHOT"
// The folder for the user's files: $XDG_CONFIG_HOME/hayfork, $XDG_CACHE_HOME/hayfork; empty without a home.
std::filesystem::path config_folder();
std::filesystem::path cache_folder();  // HAYFORK_CACHE first

}  // namespace hayfork::cli
