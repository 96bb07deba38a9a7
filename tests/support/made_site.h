// A small database that fills every page of the report: five architectures on needle, length, choice and LongPPL tasks,
// a series over training steps with gates, a search, and texts made to break pages.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hayfork::test {

// What must never act: markup, scripts, line and direction characters, NUL, broken UTF-8, formulas.
std::string hostile_text();

struct MadeSite {
  std::vector<std::string> models;  // run ids: full, swa, gdn, mamba2, orthros on the same documents
  std::vector<std::string> series;  // run ids over training steps
  std::vector<std::string> scaling;
  std::string hostile;  // a run whose name, tags, answers and target are hostile
};

// Requires: no such file. The same rows every time, but for times and run ids.
MadeSite make_site(const std::filesystem::path& file);

}  // namespace hayfork::test
