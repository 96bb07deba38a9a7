// What a run is to do: everything that decides its plan, as plain data. It is stored with the run (config_json), so
// that resume and db merge can build the same plan again. What only decides how it is computed (device, threads, batch,
// order) is not in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/events.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"

namespace hayfork::cli {

struct RunConfig {
  std::string model, tokenizer;
  std::vector<std::string> tasks;  // as given; groups are expanded when the plan is made
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  std::optional<int64_t> samples, limit, seed, num_fewshot, fewshot_seed;
  std::map<std::string, std::string> task_options;  // "niah-kind" → "number"
  std::string add_bos = "auto";
  bool parse_special = false, chat_template = false, allow_beyond_window = false;
  std::string chat_template_name = "default", chat_turns = "multi", system;
  std::string clock;  // what the chat template's clock shows; set when the plan is first made
  std::string dtype = "auto", kv_dtype = "auto";
  std::vector<std::string> ignored_config_keys;
  std::string data_dir;
};

std::string to_json(const RunConfig& config);
RunConfig run_config_from_json(const std::string& text);  // Throws: corrupt (database)

// Flags that decide the plan, --model and --dtype excepted (declare_engine has them). `show prompt` has them as well.
void declare_plan(Flags& flags, RunConfig& config);

// The text side of a model as tasks want it. Keeps what the context borrows.
struct TextSide {
  tasks::TextContext context;
  const engine::Tokenizer* tokenizer = nullptr;
};
// `max_length` 0: not checked. Warns when a chat template is there and not used. Throws: usage.
TextSide text_side(const RunConfig& config, const engine::Tokenizer* tokenizer, int64_t max_length,
                   const EventSink& events);

// The tasks of the plan, in order, groups replaced by their members. Throws: usage and what make_task throws.
std::vector<std::unique_ptr<tasks::Task>> make_tasks(const RunConfig& config, const TextSide& text,
                                                     const EventSink& events);

// Where the product's own data lies: HAYFORK_SHARE, the source tree of a build, <prefix>/share/hayfork.
std::vector<std::filesystem::path> share_dirs();
std::filesystem::path demo_dir();  // HAYFORK_DEMO, or demo/ in one of these. Throws: not_found (data)

}  // namespace hayfork::cli
