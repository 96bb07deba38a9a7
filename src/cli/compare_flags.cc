#include "cli/compare_flags.h"

#include "base/error.h"
#include "tasks/tasks.h"

namespace hayfork::cli {

void declare_compare_flags(Flags& flags, CompareFlags& options) {
  flags.group("What to compare");
  flags.list("tasks", options.tasks, "A,B", "Only these tasks or groups. Default: all that the baseline has.")
      .configurable = false;
  flags.text("metric", options.metric, "NAME", "Instead of each task's primary metric.").configurable = false;
  flags.list("by", options.by, "KEYS", "A row a slice: length, depth, subtask, or several.").configurable = false;
  flags.toggle("members", options.members, "Also the members of groups, a row each.").configurable = false;
  flags.count("flips", options.flips, "N", "List up to N losses and N wins a task. Default: 0.").configurable = false;
  flags.toggle("allow-partial", options.allow_partial, "Compare the documents both runs have, and tell of the others.")
      .configurable = false;
  flags.group("Statistics");
  flags.choice("test", options.test, {"auto", "mcnemar", "permutation", "bootstrap"},
               "auto: McNemar for 0/1 scores without clusters, else sign flips.");
  flags.real("alpha", options.alpha, "A", "A difference is told of when the adjusted p is below it.");
  flags.choice("adjust", options.adjust, {"holm", "bh", "none"}, "How the p-values of all rows are adjusted.");
  flags.count("stat-seed", options.seed, "N", "Seed of the bootstrap and of drawn permutations.");
}

std::map<std::string, std::vector<std::string>> known_groups() {
  std::map<std::string, std::vector<std::string>> out;
  for (const tasks::TaskEntry& entry : tasks::task_table()) {
    if (!entry.members.empty()) out[entry.name] = entry.members;
  }
  return out;
}

metrics::Adjust parse_adjust(const std::string& name) {
  if (name == "holm") return metrics::Adjust::holm;
  if (name == "bh") return metrics::Adjust::bh;
  HAY_CHECK(name == "none");
  return metrics::Adjust::none;
}

metrics::PairedTest parse_test(const std::string& name) {
  if (name == "mcnemar") return metrics::PairedTest::mcnemar;
  if (name == "permutation") return metrics::PairedTest::permutation;
  if (name == "bootstrap") return metrics::PairedTest::bootstrap;
  HAY_CHECK(name == "auto");
  return metrics::PairedTest::automatic;
}

runs::CompareOptions compare_options(const CompareFlags& flags) {
  if (!(flags.alpha > 0 && flags.alpha < 1)) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "--alpha: want a number between 0 and 1");
  }
  runs::CompareOptions options;
  options.tasks = flags.tasks;
  for (std::string& task : options.tasks) {
    if (task.starts_with("@")) task.erase(0, 1);
  }
  options.groups = known_groups();
  options.members = flags.members;
  if (!flags.metric.empty()) options.metric = flags.metric;
  for (const std::string& key : flags.by) options.by.push_back(runs::parse_slice_key(key));
  options.paired.test = parse_test(flags.test);
  options.paired.alpha = flags.alpha;
  options.paired.bootstrap.seed = static_cast<uint64_t>(flags.seed);
  options.paired.permutation.seed = static_cast<uint64_t>(flags.seed);
  options.adjust = parse_adjust(flags.adjust);
  options.allow_partial = flags.allow_partial;
  options.flips = flags.flips;
  return options;
}

}  // namespace hayfork::cli
