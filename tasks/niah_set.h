// Needles, questions and answers of the user's own, in any language: a JSON file of items, of which each repeat draws
// one. Judged without a model: every answer as a substring, exactly, and by ROUGE-1.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tasks/niah_kinds.h"

namespace hayfork::tasks {

struct NiahSet {
  NiahKind kind;  // named "set"
  std::string sha256;
};

// {"before": "", "after": "\n\n{question}", "answer_start": "", "answer_tokens": 50, "stops": [],
//  "items": [{"needles": ["…"], "question": "…", "answers": ["…"]}, …]}
// All but the items may be left out. A needle is put in as it is written, with the blank or line feed it should open
// with; all needles of an item are asked for at once, and every item has as many.
// Throws: not_found, corrupt (naming item and field).
NiahSet load_niah_set(const std::filesystem::path& file);

}  // namespace hayfork::tasks
