// Data sets that tasks know by name: where they come from and under which licence, as their authors state it. Used for
// manifests when the user names nothing else.
#pragma once

#include <string>
#include <vector>

namespace hayfork::datasets {

struct CatalogEntry {
  const char* family;  // "mmlu" stands for mmlu_anatomy too
  const char* source;
  const char* license;
};

// Null when the name is not known.
const CatalogEntry* find_in_catalog(const std::string& set);

}  // namespace hayfork::datasets
