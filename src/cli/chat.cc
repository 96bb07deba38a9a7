#include "cli/chat.h"

#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hayfork::cli {

engine::ChatTemplate load_chat_template(const engine::Tokenizer& tokenizer, const std::string& name,
                                        const std::string& model) {
  if (const auto source = tokenizer.chat_template(name)) {
    return engine::ChatTemplate::parse(*source, fmt::format("{}, chat template \"{}\"", model, name));
  }
  std::string known;
  for (const auto& [other, source] : tokenizer.chat_templates()) known += (known.empty() ? "" : ", ") + other;
  throw Error(ErrorCode::usage, ErrorSubject::general,
              known.empty() ? "this checkpoint has no chat template" : fmt::format("no chat template \"{}\"", name),
              {.where = model, .why = known.empty() ? "" : "it has " + known});
}

std::tm local_clock() {
  const std::time_t now = std::time(nullptr);
  std::tm clock{};
  ::localtime_r(&now, &clock);
  return clock;
}

std::tm parse_clock(const std::string& text) {
  std::tm clock{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &clock);
  if (end == nullptr) end = ::strptime(text.c_str(), "%Y-%m-%d", &clock);
  if (end == nullptr || *end != '\0') {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--clock: cannot read \"{}\"", text),
                {.why = "want 2026-11-30T12:00:00 or 2026-11-30"});
  }
  return clock;
}

tasks::ChatRenderer chat_renderer(engine::ChatTemplate chat, const engine::Tokenizer& tokenizer, std::tm clock) {
  return [chat = std::move(chat), special = tokenizer.special_tokens(), clock](
             std::span<const tasks::ChatMessage> messages, bool add_generation_prompt) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const tasks::ChatMessage& message : messages) {
      list.push_back({{"role", message.role}, {"content", message.content}});
    }
    engine::ChatRequest request;
    request.messages = &list;
    request.add_generation_prompt = add_generation_prompt;
    request.special_tokens = special;
    request.clock = clock;
    return chat.render(request);
  };
}

}  // namespace hayfork::cli
