#include "tasks/turns.h"

#include "base/utf8.h"
#include "tasks/doc_fields.h"

namespace hayfork::tasks {
namespace {

// Two texts with the delimiter between them, unless a blank stands there already.
std::string joined(const std::string& a, const std::string& b, const std::string& delimiter) {
  if (a.empty() || b.empty()) return a + b;
  const bool blank = rstrip(a).size() < a.size() || lstrip(b).size() < b.size();
  return a + (blank ? "" : delimiter) + b;
}

std::string demonstrations_text(const Conversation& c) {
  std::string out;
  for (const auto& [question, answer] : c.demonstrations) {
    out += question;
    if (answer) out += c.delimiter + *answer + c.fewshot_delimiter;
  }
  return out;
}

// lm_eval/api/utils.py, multiturn_to_singleturn: all but a leading system message become one user message.
std::string chat_text(const TextContext& text, const Conversation& c) {
  std::vector<ChatMessage> messages;
  const std::string system = joined(text.system, c.description, c.fewshot_delimiter);
  if (!system.empty()) messages.push_back({"system", system});
  if (text.merge_turns) {
    messages.push_back({"user", demonstrations_text(c) + c.question});
    return text.chat(messages, true);
  }
  for (const auto& [question, answer] : c.demonstrations) {
    messages.push_back({"user", question});
    if (answer) messages.push_back({"assistant", *answer});
  }
  messages.push_back({"user", c.question});
  return text.chat(messages, true);
}

}  // namespace

std::string conversation_text(const TextContext& text, const Conversation& c) {
  if (text.chat) return chat_text(text, c);
  return c.description + demonstrations_text(c) + c.question;
}

std::string option_delimiter(const TextContext& text, const std::string& delimiter) {
  return text.chat ? "" : delimiter;
}

}  // namespace hayfork::tasks
