// What a NIAH run was asked for: kind, placement, grid, haystack; checked before anything is made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/haystack.h"
#include "tasks/niah_kinds.h"

namespace hayfork::tasks {

struct NiahSettings {
  std::shared_ptr<const NiahKind> kind;
  std::string set_sha256;  // of the user's own needles; "" without
  std::string placement;   // overwrite, insert, kamradt
  int64_t n_needles = 1;
  std::vector<int64_t> lengths;  // ascending, distinct
  std::vector<double> depths;    // ascending, distinct, 0 to 100
  int64_t samples = 10;
  uint64_t seed = 0;
};

const std::vector<OptionDef>& niah_options();
// Throws: usage, and not_found or corrupt for a needle set.
NiahSettings read_niah_settings(const TaskOptions& options, const TextContext& text);
datasets::Haystack pick_haystack(const TaskOptions& options, const NiahKind& kind);

}  // namespace hayfork::tasks
