// Help texts, made from the declarations: for the terminal (hayfork help, --help) and as markdown (docs/cli.md).
#pragma once

#include <string>

#include "cli/command.h"

namespace hayfork::cli {

std::string help_overview(const Console& console);
std::string help_of(const Command& command, const Console& console);
std::string help_of_verb(const std::string& verb, const Console& console);  // a verb of several parts: lists them
std::string help_markdown();                                                // all of it

}  // namespace hayfork::cli
