// The results as pages for people: nine kinds, each a function of rows read from the store (pages.h). The same pages
// make a folder, one file, or what `hayfork serve` answers with. Nothing is fetched from anywhere, everything can be
// read without JavaScript, and the bytes are a function of the database and the options alone. docs/report.md
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runs/report/colours.h"
#include "runs/store.h"

namespace hayfork::runs {

enum class ShownSamples { none, failed, flips, all };

struct SiteOptions {
  std::vector<int64_t> runs;        // newest first
  int64_t n_runs_all = 0;           // of the database, to say what is left out
  std::optional<int64_t> baseline;  // empty: the baseline named main, or the only one, or the oldest run shown
  ShownSamples samples = ShownSamples::flips;  // flips: those too that failed or were cut
  int64_t samples_a_run = 200;                 // at most so many on a run's page of samples; 0: no limit
  bool redact = false;                         // no text of prompts, answers and targets anywhere
  bool digests = true;                         // of every run in the footer; else of a run on its own page alone
  Theme theme = Theme::cividis;                // of heatmaps
  std::map<std::string, std::vector<std::string>> groups;  // tasks of groups, as CompareOptions has them
};

class Site {
 public:
  Site(Store& store, SiteOptions options);  // reads the runs. Throws as Store
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  // Names of all pages: "index", "niah", …, "run-r7f3k", "samples-r7f3k". A page is NAME.html.
  std::vector<std::string> pages() const;
  // One page whole, with its style and script in it, linked to the others as NAME.html. Empty: there is no such page.
  std::optional<std::string> page(std::string_view name);
  std::string single_file();  // every page in one document

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The Content-Security-Policy of every page: its own script and style, named by their digests, and nothing else.
const std::string& content_policy();

// A run's id as part of a file's name: [a-z0-9-] stay, every other byte becomes _xx. Different ids give different
// names.
std::string page_stem(std::string_view run_id);

}  // namespace hayfork::runs
