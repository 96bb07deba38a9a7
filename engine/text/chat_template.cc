#include "engine/text/chat_template.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "engine/text/jinja_from_json.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Runtime;
using jinja::Value;

// transformers: utils/chat_template_utils.py, for the tag, the order of the names and the messages' checks.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::array<const char*, 3> kReasoningFields = {"reasoning_content", "thinking", "reasoning"};

constexpr size_t kMaxSource = 4 << 20;
constexpr int64_t kBaseBytes = 256LL << 20;
constexpr int64_t kBytesPerInputByte = 32;  // a template may copy a content into macros, blocks and namespaces
constexpr int64_t kStepsPerValue = 4096;    // some templates search all messages before each one
constexpr size_t kBaseOutput = 16 << 20;

[[noreturn]] void bad_request(const std::string& what) {
  throw Error(ErrorCode::usage, ErrorSubject::general, what);
}

struct InputSize {
  size_t bytes = 0;
  int64_t n_values = 0;
};

void measure(const Json& json, int depth, InputSize& size) {
  if (depth > jinja::kMaxValueDepth) bad_request("a chat message is nested too deeply");
  ++size.n_values;
  size.bytes += 64;
  if (json.is_string()) size.bytes += json.get_ref<const std::string&>().size();
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      size.bytes += key.size();
      measure(value, depth + 1, size);
    }
  } else if (json.is_array()) {
    for (const Json& value : json) measure(value, depth + 1, size);
  }
}

// Keys without a value are left out; the first reasoning field that has one is copied to the names templates read.
Json normalized_message(const Json& message) {
  Json kept = Json::object();
  const Json* reasoning = nullptr;
  for (const char* field : kReasoningFields) {
    const auto found = message.find(field);
    if (found != message.end() && !found->is_null() && !reasoning) reasoning = &*found;
  }
  if (reasoning) kept["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  if (reasoning) kept["reasoning_content"] = *reasoning;
  return kept;
}

Json normalized(const ChatRequest& request) {
  if (!request.messages || !request.messages->is_array()) bad_request("chat messages must be a list");
  if (request.messages->empty()) bad_request("a chat needs at least one message");
  Json messages = Json::array();
  for (const Json& message : *request.messages) {
    if (!message.is_object()) bad_request("a chat message must be an object");
    messages.push_back(normalized_message(message));
  }
  for (const auto& [list, what] : {std::pair{request.tools, "tools"}, {request.documents, "documents"}}) {
    if (!list || list->is_null()) continue;
    const bool objects =
        list->is_array() && std::all_of(list->begin(), list->end(), [](const Json& item) { return item.is_object(); });
    if (!objects) bad_request(fmt::format("{} must be a list of objects", what));
  }
  if (request.kwargs && !request.kwargs->is_null() && !request.kwargs->is_object())
    bad_request("template variables must be an object");
  return messages;
}

// Appends the tag to the last message's text and returns that text as it was.
std::string tag_final_message(Json& messages, const std::string& source) {
  const auto content = messages.back().find("content");
  if (content == messages.back().end()) bad_request("the final message has no content to continue");
  if (source.find("content") == std::string::npos)
    bad_request("the chat template does not use the content that shall be continued");
  Json* text = &*content;
  if (content->is_array()) {
    const auto block = std::find_if(content->rbegin(), content->rend(),
                                    [](const Json& b) { return b.is_object() && b.contains("text"); });
    if (block == content->rend()) bad_request("the final message has no text to continue");
    text = &(*block)["text"];
  }
  if (!text->is_string()) bad_request("the final message's content is no text to continue");
  const std::string original = text->get<std::string>();
  *text = original + std::string(kContinueTag);
  return original;
}

std::string cut_at_tag(std::string rendered, const std::string& final_text) {
  const std::string_view bare = kContinueTag.substr(0, kContinueTag.size() - 1);
  const size_t tag = rendered.rfind(bare);
  const std::string_view wanted = jinja::strip_space(final_text, jinja::Side::both);
  if (tag == std::string::npos || jinja::find_text(rendered, wanted) == std::string::npos) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data,
                "the final message does not appear in the rendered chat, so it cannot be continued",
                {.why = "the chat template deletes or changes it"});
  }
  const bool spacing_kept = std::string_view(rendered).substr(tag, kContinueTag.size()) == kContinueTag;
  rendered.resize(tag);
  // The template trimmed the content: what it would have trimmed is trimmed here too.
  return spacing_kept ? rendered : std::string(jinja::strip_space(rendered, jinja::Side::right));
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  std::string name;
  jinja::Template parsed;
};

ChatTemplate ChatTemplate::parse(std::string source, std::string name) {
  if (source.size() > kMaxSource) {
    throw Error(ErrorCode::corrupt, ErrorSubject::model, "the chat template is too large",
                {.where = name, .why = fmt::format("{} bytes, at most {} are read", source.size(), kMaxSource)});
  }
  auto impl = std::make_shared<Impl>();
  impl->source = std::move(source);
  impl->name = std::move(name);
  impl->parsed = jinja::parse_template(impl->source, impl->name);
  return ChatTemplate(std::move(impl));
}

std::string ChatTemplate::render(const ChatRequest& request) const {
  if (request.continue_final_message && request.add_generation_prompt) {
    bad_request("continuing the final message and adding a generation prompt exclude each other");
  }
  Json messages = normalized(request);
  std::string final_text;
  if (request.continue_final_message) final_text = tag_final_message(messages, impl_->source);

  InputSize input;
  measure(messages, 0, input);
  for (const Json* part : {request.tools, request.documents, request.kwargs}) {
    if (part) measure(*part, 0, input);
  }
  jinja::Limits limits;
  limits.bytes = kBaseBytes + kBytesPerInputByte * static_cast<int64_t>(input.bytes);
  limits.steps += kStepsPerValue * input.n_values + static_cast<int64_t>(input.bytes);
  Runtime rt(impl_->name, limits, request.clock ? &*request.clock : nullptr);
  jinja::Interpreter interpreter(rt, kBaseOutput + 8 * input.bytes);

  for (const auto& [name, text] : request.special_tokens) interpreter.define(name, Value::string(rt, text));
  const std::array<std::pair<const char*, const Json*>, 3> lists = {
      {{"messages", &messages}, {"tools", request.tools}, {"documents", request.documents}}};
  if (request.kwargs && request.kwargs->is_object()) {
    for (const auto& [name, value] : request.kwargs->items()) {
      const bool taken =  // clang 14 wants the binding captured by name
          name == "add_generation_prompt" ||
          std::any_of(lists.begin(), lists.end(), [&key = name](const auto& list) { return key == list.first; });
      if (taken) bad_request(fmt::format("the template variable {} is set by the request itself", name));
      interpreter.define(name, jinja::from_json(rt, value));
    }
  }
  for (const auto& [name, json] : lists) interpreter.define(name, json ? jinja::from_json(rt, *json) : Value::none());
  interpreter.define("add_generation_prompt", Value(request.add_generation_prompt));

  std::string rendered = interpreter.run(impl_->parsed);
  return request.continue_final_message ? cut_at_tag(std::move(rendered), final_text) : rendered;
}

const std::string& ChatTemplate::source() const {
  return impl_->source;
}
const std::string& ChatTemplate::name() const {
  return impl_->name;
}

}  // namespace hayfork::engine
