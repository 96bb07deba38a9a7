// Needle in a haystack. Protocols: niah/<kind>/1. Kamradt 2023 (gkamradt/LLMTest_NeedleInAHaystack) is where the idea,
// the grid and two of the kinds are from; the rest is ours: exact prompt lengths, needles at sentence ends found in the
// text, several seeds, and prompts of one seed that are equal but for the needle's place.
#pragma once

#include "tasks/tasks.h"

namespace hayfork::tasks {

const std::vector<OptionDef>& niah_options();
std::unique_ptr<Task> make_niah(const std::string& name, const TaskOptions& options, const TextContext& text);

}  // namespace hayfork::tasks
