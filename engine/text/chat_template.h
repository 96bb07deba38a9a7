// Chat templates: Jinja2 text from a checkpoint, rendered exactly as Hugging Face transformers renders it (its
// sandboxed environment: trim_blocks, lstrip_blocks, loop controls, tojson, raise_exception, strftime_now, namespace,
// generation). Knows no tokenizer and no files: the caller brings the text, the special tokens and the clock, so that a
// rendering depends on its arguments alone. Templates are untrusted: depth, steps and output are limited.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace hayfork::engine {

// One conversation to render. The JSON values are borrowed: they must live until render returns.
struct ChatRequest {
  const nlohmann::ordered_json* messages = nullptr;   // required: a non-empty array of objects
  const nlohmann::ordered_json* tools = nullptr;      // array of JSON schemas; absent: None, which is defined and false
  const nlohmann::ordered_json* documents = nullptr;  // array of objects; absent: None
  const nlohmann::ordered_json* kwargs =
      nullptr;  // object of further variables (enable_thinking, …); wins over special_tokens
  bool add_generation_prompt = false;
  bool continue_final_message = false;  // not together with add_generation_prompt
  std::map<std::string, std::string>
      special_tokens;            // by variable name: {"bos_token", "<s>"}; one not here is undefined
  std::optional<std::tm> clock;  // what strftime_now sees; a template that asks for it needs one
};

class ChatTemplate {
 public:
  // `name` is for messages (the file). Throws: Error(unsupported or corrupt, model) with the construct and its line.
  static ChatTemplate parse(std::string source, std::string name);

  // The prompt text. Message keys whose value is null are left out, and reasoning_content, thinking and reasoning are
  // copied to each other's names, as transformers does. With continue_final_message the text ends inside the last
  // message. Throws: Error(usage) for a request that breaks the rules above; Error(corrupt, data) for what the template
  // itself refuses (raise_exception) or cannot do with these messages; Error(unsupported, model) for an unknown
  // construct; Error(resource) when a limit is passed.
  std::string render(const ChatRequest& request) const;

  const std::string& source() const;  // the text as given: it is hashed into a run's identity
  const std::string& name() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;  // immutable: copies share it, and threads may render at once
};

}  // namespace hayfork::engine
