#include <algorithm>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "cli/chat.h"
#include "cli/input.h"
#include "cli/probe.h"
#include "cli/verbs.h"
#include "engine/text/chat_template.h"

namespace hayfork::cli {
namespace {

using nlohmann::ordered_json;

struct ChatOptions {
  std::string model, tokenizer, messages, name = "default", template_file, kwargs, clock;
  bool no_generation_prompt = false, continue_final = false;
};

struct Conversation {
  ordered_json messages, tools, documents, kwargs;
};

ordered_json take(ordered_json& from, const char* key) {
  return from.contains(key) ? std::move(from[key]) : ordered_json();
}

// A list of messages, or an object {"messages":[…], "tools":…, "documents":…, "kwargs":…}.
Conversation read_conversation(const ChatOptions& options) {
  ordered_json root =
      parse_ordered_json(read_input(options.messages, ErrorSubject::data), options.messages, ErrorSubject::data);
  Conversation conversation;
  if (root.is_array()) {
    conversation.messages = std::move(root);
  } else if (root.is_object() && root.contains("messages")) {
    conversation.tools = take(root, "tools");
    conversation.documents = take(root, "documents");
    conversation.kwargs = take(root, "kwargs");
    conversation.messages = take(root, "messages");
  } else {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "want a list of messages, or {\"messages\":[…]}",
                {.where = options.messages});
  }
  const auto is_message = [](const ordered_json& message) { return message.is_object(); };
  if (!conversation.messages.is_array() ||
      !std::all_of(conversation.messages.begin(), conversation.messages.end(), is_message)) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "messages are a list of objects",
                {.where = options.messages, .next = R"(for example [{"role": "user", "content": "…"}])"});
  }
  if (!options.kwargs.empty()) {
    conversation.kwargs = parse_ordered_json(options.kwargs, "--kwargs", ErrorSubject::data);
  }
  return conversation;
}

const ordered_json* given(const ordered_json& value) {
  return value.is_null() ? nullptr : &value;
}

int run(const ChatOptions& options, Console& console) {
  const Conversation conversation = read_conversation(options);
  const auto tokenizer = engine::Tokenizer::load(options.tokenizer.empty() ? model_folder(options.model)
                                                                           : std::filesystem::path(options.tokenizer));
  const engine::ChatTemplate chat =
      options.template_file.empty()
          ? load_chat_template(*tokenizer, options.name, options.model)
          : engine::ChatTemplate::parse(read_file(options.template_file, ErrorSubject::model, size_t{1} << 24),
                                        options.template_file);
  engine::ChatRequest request;
  request.messages = &conversation.messages;
  request.tools = given(conversation.tools);
  request.documents = given(conversation.documents);
  request.kwargs = given(conversation.kwargs);
  request.add_generation_prompt = !options.no_generation_prompt && !options.continue_final;
  request.continue_final_message = options.continue_final;
  request.special_tokens = tokenizer->special_tokens();
  request.clock = options.clock.empty() ? local_clock() : parse_clock(options.clock);
  console.out(chat.render(request));
  if (console.out_is_terminal()) console.out("\n");
  return 0;
}

}  // namespace

Action declare_probe_chat(Flags& flags) {
  auto options = std::make_shared<ChatOptions>();
  declare_text_source(flags, options->model, options->tokenizer, "Checkpoint folder.");
  FlagInfo& messages = flags.text(
      "messages", options->messages, "F.json",
      "A list of messages, or {\"messages\":[…]} with \"tools\", \"documents\" and \"kwargs\"; - for standard input.");
  messages.required = true;
  messages.kind = "file";
  flags.group("How");
  flags.text("template", options->template_file, "FILE", "Another template than the checkpoint's own.").kind = "file";
  flags.text("template-name", options->name, "NAME", "Which of several templates.");
  flags.toggle("no-generation-prompt", options->no_generation_prompt, "Do not open the assistant's turn at the end.");
  flags.toggle("continue-final-message", options->continue_final, "End inside the last message.");
  flags.text("kwargs", options->kwargs, "JSON", "More variables for the template: {\"enable_thinking\":false}.");
  flags.text("clock", options->clock, "TIME", "What the template's clock shows, 2026-11-30T12:00:00. Default: now.");
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
