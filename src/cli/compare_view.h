// A comparison as tables: what compare prints and gate writes down.
#pragma once

#include "cli/output.h"
#include "runs/compare.h"

namespace hayfork::cli {

// `people`: few columns, rounded, with arrows; else every number whole.
runs::Section comparison_section(const runs::Comparison& comparison, std::span<const runs::RunView> cands, bool people);
runs::Section flips_section(const runs::Comparison& comparison, std::span<const runs::RunView> cands,
                            runs::Store& store);
// "differs: arch (SWA-128→GDN), weights.  same: tokenizer, …", a line a candidate.
std::vector<std::string> identity_lines(const runs::Comparison& comparison, std::span<const runs::RunView> cands);
runs::Section identity_section(const runs::Comparison& comparison, std::span<const runs::RunView> cands);

std::string signed_text(double value, int digits);  // "+0.127", "−0.019"
std::string interval_text(const std::optional<metrics::Interval>& interval, int digits);

}  // namespace hayfork::cli
