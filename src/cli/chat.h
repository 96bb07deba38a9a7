// A checkpoint's chat template, ready for tasks and probes.
#pragma once

#include <ctime>
#include <string>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"

namespace hayfork::cli {

// Throws: usage, when there is none of this name, listing those there are.
engine::ChatTemplate load_chat_template(const engine::Tokenizer& tokenizer, const std::string& name,
                                        const std::string& model);
std::tm local_clock();
std::tm parse_clock(const std::string& text);  // 2026-11-30T12:00:00 or a date. Throws: usage

// For tasks. The template and the tokenizer's special tokens are copied. `clock` is fixed for a whole run.
tasks::ChatRenderer chat_renderer(engine::ChatTemplate chat, const engine::Tokenizer& tokenizer, std::tm clock);

}  // namespace hayfork::cli
