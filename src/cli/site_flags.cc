#include "cli/site_flags.h"

#include "cli/compare_flags.h"

namespace hayfork::cli {

void declare_site_flags(Flags& flags, SiteFlags& options) {
  flags.group("What is shown");
  FlagInfo& runs = flags.list("runs", options.runs, "RUN,…", "These runs. Default: the newest.");
  runs.kind = "run";
  runs.configurable = false;
  flags
      .list("filter", options.filters, "KEY=VALUE",
            "Runs with this arch, status, tag, model, task, series, dtype, name, since.")
      .configurable = false;
  flags.count("newest", options.newest, "N", "At most so many runs, the newest; 0: all of them.");
  FlagInfo& baseline = flags.text("baseline", options.baseline, "RUN",
                                  "What the others are compared with. Default: @baseline:main, else the oldest shown.");
  baseline.kind = "run";
  baseline.configurable = false;
  flags.choice("include-samples", options.samples, {"failed", "flips", "all", "none"},
               "Which samples have their texts shown: those that failed or were cut; those too that the baseline "
               "answered otherwise.");
  flags.count("samples-a-run", options.samples_a_run, "N", "At most so many samples of a run; 0: no limit.");
  flags.toggle("redact", options.redact, "No prompts, answers, targets, notes, paths, host names and commands.");
  flags.choice("theme", options.theme, {"cividis", "classic"}, "Colours of heatmaps, as hayfork heatmap has them.");
}

runs::SiteOptions site_options(runs::Store& store, const SiteFlags& flags) {
  runs::SiteOptions out;
  runs::RunFilter filter = runs::parse_run_filter(flags.filters);
  const auto all = store.list_runs({});
  out.n_runs_all = static_cast<int64_t>(all.size());
  if (flags.runs.empty()) {
    filter.limit = flags.newest;
    for (const runs::RunListRow& row : store.list_runs(filter)) out.runs.push_back(row.run);
  } else {
    std::set<int64_t> chosen;
    for (const std::string& reference : flags.runs) chosen.insert(store.find_run(reference).id);
    for (const runs::RunListRow& row : all) {
      if (chosen.contains(row.run)) out.runs.push_back(row.run);
    }
  }
  if (!flags.baseline.empty()) out.baseline = store.find_run(flags.baseline).id;
  out.samples = flags.samples == "none"     ? runs::ShownSamples::none
                : flags.samples == "failed" ? runs::ShownSamples::failed
                : flags.samples == "all"    ? runs::ShownSamples::all
                                            : runs::ShownSamples::flips;
  out.samples_a_run = flags.samples_a_run;
  out.redact = flags.redact;
  out.theme = flags.theme == "classic" ? runs::Theme::classic : runs::Theme::cividis;
  out.groups = known_groups();
  return out;
}

}  // namespace hayfork::cli
