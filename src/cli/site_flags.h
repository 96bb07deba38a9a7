// report and serve: the two verbs, and the flags they share: which runs are shown, beside which baseline, with how many
// samples.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "runs/report/site/site.h"

namespace hayfork::cli {

Action declare_report(Flags& flags);
Action declare_serve(Flags& flags);

struct SiteFlags {
  std::vector<std::string> runs, filters;
  int64_t newest = 50, samples_a_run = 200;
  std::string baseline, samples = "flips", theme = "cividis";
  bool redact = false;
};
void declare_site_flags(Flags& flags, SiteFlags& options);
// Throws: usage, not_found.
runs::SiteOptions site_options(runs::Store& store, const SiteFlags& flags);

}  // namespace hayfork::cli
