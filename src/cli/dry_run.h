// `run --dry-run`: what a plan would take, without running it.
#pragma once

#include "cli/output.h"
#include "cli/plan.h"

namespace hayfork::cli {

void print_dry_run(const Plan& plan, const OutputOptions& output, Console& console);

}  // namespace hayfork::cli
