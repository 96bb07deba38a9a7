// Flags that compare, gate and table share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "runs/compare.h"

namespace hayfork::cli {

struct CompareFlags {
  std::vector<std::string> tasks, by;
  std::string metric, test = "auto", adjust = "holm";
  double alpha = 0.05;
  int64_t seed = 0, flips = 0;
  bool allow_partial = false, members = false;
};
void declare_compare_flags(Flags& flags, CompareFlags& options);
runs::CompareOptions compare_options(const CompareFlags& flags);  // Throws: usage

// Members of the groups that this program knows.
std::map<std::string, std::vector<std::string>> known_groups();
metrics::Adjust parse_adjust(const std::string& name);
metrics::PairedTest parse_test(const std::string& name);

}  // namespace hayfork::cli
