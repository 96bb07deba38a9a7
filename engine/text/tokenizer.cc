#include "engine/text/tokenizer.h"

namespace hayfork::engine {

std::optional<std::string> Tokenizer::chat_template(const std::string& template_name) const {
  const auto found = chat_templates_.find(template_name);
  if (found == chat_templates_.end()) return std::nullopt;
  return found->second;
}

}  // namespace hayfork::engine
