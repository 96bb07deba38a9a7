// What the forms of `hayfork probe` share: the engine behind them, requests as JSON lines, ids or text, and answers
// printed in the order of the requests, floats with all their digits, text in ASCII: a line is a line for
// every reader.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

namespace hayfork::cli {

struct ProbeFlags {
  EngineFlags engine;
  std::string stats;  // file for EngineStats
  std::string format = "jsonl";
  std::string add_bos = "auto";
  bool allow_beyond_window = false;
};

void declare_probe(Flags& flags, ProbeFlags& probe);
// For probes that take text: --add-bos.
void declare_probe_text(Flags& flags, ProbeFlags& probe);

// For probes that need a tokenizer and no engine: the group Input with --model, which is required, and --tokenizer.
void declare_text_source(Flags& flags, std::string& model, std::string& tokenizer, const char* help);

std::unique_ptr<engine::Engine> open_probe(const ProbeFlags& flags, Console& console);
// Writes --stats, when asked for.
void write_stats(const ProbeFlags& flags, const engine::Engine& engine);

// One JSON value a line; blank lines are skipped. `where` is "file:line". Throws: not_found, corrupt (data).
struct JsonLine {
  nlohmann::json value;
  std::string where;
};
std::vector<JsonLine> read_json_lines(const std::string& path);

// A list of ids, each within [0, vocab_size). Throws: corrupt (data) naming `where`.
std::vector<int32_t> ids_of(const nlohmann::json& value, const engine::ModelInfo& info, const std::string& where);
// {"ids":[[…],…]} of a file.
std::vector<std::vector<int32_t>> read_ids_file(const std::string& path, const engine::ModelInfo& info);
// Throws: usage, when the model has no tokenizer.
const engine::Tokenizer& tokenizer_of(const engine::Lm& lm, const std::string& where);
// Text as the model's own conventions have it: with BOS by --add-bos, never twice.
std::vector<int32_t> encode_text(const engine::Tokenizer& tokenizer, std::string_view text, const std::string& add_bos);

// Hands all requests over and prints one line an answer, in order: what `line` makes of it, or
// {"error":…,"code":…} for a failure. Returns the exit status: 0, 4 with failures, 130 or 143 when stopped.
int answer_in_order(engine::Engine& engine, const std::vector<engine::Request>& requests, Console& console,
                    const std::function<nlohmann::ordered_json(size_t, const engine::Answer&)>& line);

}  // namespace hayfork::cli
