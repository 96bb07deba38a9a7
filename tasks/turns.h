// Turns to text (lm_eval/api/task.py and utils.py): plainly, as everything joined with its delimiters, or through a
// chat template with demonstrations as turns and the delimiters left out.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tasks/tasks.h"

namespace hayfork::tasks {

struct Conversation {
  std::string description;
  std::string delimiter = " ", fewshot_delimiter = "\n\n";
  // Question and answer; without one (an empty target, but not an empty option) the delimiters are left out too.
  std::vector<std::pair<std::string, std::optional<std::string>>> demonstrations;
  std::string question;
};

// Throws: what the chat template throws.
std::string conversation_text(const TextContext& text, const Conversation& conversation);

// What stands between the question and an option: nothing under a chat template.
std::string option_delimiter(const TextContext& text, const std::string& delimiter);

}  // namespace hayfork::tasks
