#include "cli/run_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "cli/chat.h"
#include "cli/console.h"
#include "cli/engine_flags.h"
#include "cli/suggest.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxHintsBytes = 1 << 16;

template <typename T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

template <typename T>
void read_optional(const json& root, const char* key, std::optional<T>& to) {
  if (const json value = root.value(key, json()); !value.is_null()) to = value.get<T>();
}

// The options a task may be given on the command line, as flags: niah's "kind" is --niah-kind, unless it names its own.
std::string flag_of(const tasks::TaskEntry& entry, const tasks::OptionDef& option) {
  return fold_underscores(option.flag.empty() ? fmt::format("{}-{}", entry.family, option.key) : option.flag);
}

// "how it is done" → "How it is done."; a value at the beginning ("overwrite: …") stays as it is written.
std::string as_sentence(std::string text) {
  const size_t end = text.find(' ');
  const bool word = end != std::string::npos && end > 0 && text[end - 1] >= 'a' && text[end - 1] <= 'z';
  if (word && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text.ends_with(".") ? text : text + ".";
}

// Whether only tasks of this family have the option: then its bare name will do as well.
bool only_here(const tasks::TaskEntry& entry, const std::string& key) {
  return std::none_of(tasks::task_table().begin(), tasks::task_table().end(), [&](const tasks::TaskEntry& other) {
    return other.family != entry.family && std::any_of(other.options.begin(), other.options.end(),
                                                       [&](const tasks::OptionDef& o) { return o.key == key; });
  });
}

void declare_task_options(Flags& flags, RunConfig& config) {
  for (const tasks::TaskEntry& entry : tasks::task_table()) {
    for (const tasks::OptionDef& option : entry.options) {
      const std::string name = flag_of(entry, option);
      if (flags.find(name) != nullptr) continue;  // shared by a family
      flags.group("Task " + entry.family);
      FlagInfo& info = flags.declare(name, option.value_name.empty() ? "VALUE" : option.value_name,
                                     as_sentence(option.help), [&config, name](const std::vector<std::string>& values) {
                                       config.task_options[name] = values.empty() ? "" : values.back();
                                     });
      info.preset = option.default_value;
      const std::string bare = fold_underscores(option.key);
      if (bare != name && only_here(entry, option.key)) info.alias = bare;
    }
  }
}

std::string hints_of(const RunConfig& config) {
  if (config.model.empty() || config.model.starts_with("random:")) return {};
  const fs::path path = model_folder(config.model) / "hayfork.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  std::string text = read_file(path, ErrorSubject::model, kMaxHintsBytes);
  parse_json(text, path.string(), ErrorSubject::model);  // for its error
  return text;
}

tasks::TaskOptions task_options(const RunConfig& config, const tasks::TaskEntry& entry, const EventSink& events) {
  tasks::TaskOptions options;
  options.lengths = config.lengths;
  options.depths = config.depths;
  options.samples = config.samples;
  options.limit = config.limit;
  if (config.seed) options.seed = static_cast<uint64_t>(*config.seed);
  options.num_fewshot = config.num_fewshot;
  options.fewshot_seed = config.fewshot_seed;
  options.data_dir = config.data_dir;
  options.share_dirs = share_dirs();
  options.events = events;
  for (const tasks::OptionDef& option : entry.options) {
    const auto found = config.task_options.find(flag_of(entry, option));
    if (found != config.task_options.end()) options.extra[option.key] = found->second;
  }
  return options;
}

}  // namespace

std::string to_json(const RunConfig& config) {
  const json root = {{"model", config.model},
                     {"tokenizer", config.tokenizer},
                     {"tasks", config.tasks},
                     {"lengths", config.lengths},
                     {"depths", config.depths},
                     {"samples", optional_json(config.samples)},
                     {"limit", optional_json(config.limit)},
                     {"seed", optional_json(config.seed)},
                     {"num_fewshot", optional_json(config.num_fewshot)},
                     {"fewshot_seed", optional_json(config.fewshot_seed)},
                     {"task_options", config.task_options},
                     {"add_bos", config.add_bos},
                     {"parse_special", config.parse_special},
                     {"chat_template", config.chat_template},
                     {"chat_template_name", config.chat_template_name},
                     {"chat_turns", config.chat_turns},
                     {"system", config.system},
                     {"clock", config.clock},
                     {"allow_beyond_window", config.allow_beyond_window},
                     {"dtype", config.dtype},
                     {"kv_dtype", config.kv_dtype},
                     {"ignored_config_keys", config.ignored_config_keys},
                     {"data_dir", config.data_dir}};
  return root.dump();
}

RunConfig run_config_from_json(const std::string& text) {
  const json root = parse_json(text, "the run's configuration", ErrorSubject::database);
  RunConfig config;
  try {
    config.model = root.at("model").get<std::string>();
    config.tokenizer = root.value("tokenizer", "");
    config.tasks = root.at("tasks").get<std::vector<std::string>>();
    config.lengths = root.value("lengths", config.lengths);
    config.depths = root.value("depths", config.depths);
    read_optional(root, "samples", config.samples);
    read_optional(root, "limit", config.limit);
    read_optional(root, "seed", config.seed);
    read_optional(root, "num_fewshot", config.num_fewshot);
    read_optional(root, "fewshot_seed", config.fewshot_seed);
    config.task_options = root.value("task_options", config.task_options);
    config.add_bos = root.value("add_bos", config.add_bos);
    config.parse_special = root.value("parse_special", false);
    config.chat_template = root.value("chat_template", false);
    config.chat_template_name = root.value("chat_template_name", config.chat_template_name);
    config.chat_turns = root.value("chat_turns", config.chat_turns);
    config.system = root.value("system", "");
    config.clock = root.value("clock", "");
    config.allow_beyond_window = root.value("allow_beyond_window", false);
    config.dtype = root.value("dtype", config.dtype);
    config.kv_dtype = root.value("kv_dtype", config.kv_dtype);
    config.ignored_config_keys = root.value("ignored_config_keys", config.ignored_config_keys);
    config.data_dir = root.value("data_dir", "");
  } catch (const json::exception& error) {
    throw Error(ErrorCode::corrupt, ErrorSubject::database, "the run's stored configuration cannot be read",
                {.why = error.what()});
  }
  return config;
}

void declare_plan(Flags& flags, RunConfig& config) {
  flags.group("What to run");
  flags
      .counts("lengths", config.lengths, "N,…",
              "Context lengths in tokens, prompt and answer together: 512-2k*2, 4k,8k. "
              "Default: the task's own.")
      .alias = "length";
  flags.numbers("depths", config.depths, "P,…", "Needle depths in percent: 0-100+10. Default: the task's own.");
  flags.count("samples", config.samples, "N", "Samples a cell of a generated task. Default: the task's own.");
  flags.count("limit", config.limit, "N", "The first N documents, or N samples a cell.");
  flags.count("seed", config.seed, "N", "Overrides every seed of the protocol. Default: each protocol's own.");
  flags.count("num-fewshot", config.num_fewshot, "N", "Examples before each question. Default: the task's own.");
  flags.count("fewshot-seed", config.fewshot_seed, "N", "Draws other examples.");
  flags.text("data", config.data_dir, "DIR", "Folder of data sets.").kind = "dir";
  flags.group("Prompts");
  flags.choice("add-bos", config.add_bos, {"auto", "on", "off"},
               "Begin prompts with the begin-of-text token; auto as the tokenizer does by itself.");
  flags.toggle("parse-special", config.parse_special, "Special tokens spelled out in documents become control tokens.");
  flags.toggle("chat-template", config.chat_template, "Ask through the checkpoint's chat template.");
  flags.text("chat-template-name", config.chat_template_name, "NAME", "Which of several templates.");
  flags.choice("chat-turns", config.chat_turns, {"multi", "merged"},
               "Examples as turns of their own, or merged with the question into one turn.");
  flags.text("system", config.system, "TEXT", "System message; needs --chat-template.");
  declare_task_options(flags, config);
}

TextSide text_side(const RunConfig& config, const engine::Tokenizer* tokenizer, int64_t max_length,
                   const EventSink& events) {
  TextSide side;
  side.tokenizer = tokenizer;
  side.context.tokenizer = tokenizer;
  side.context.parse_special = config.parse_special;
  side.context.max_length = max_length;
  side.context.hints_json = hints_of(config);
  if (tokenizer == nullptr) {
    throw Error(ErrorCode::not_found, ErrorSubject::model,
                "this checkpoint has no tokenizer, and tasks are made of text",
                {.where = config.model, .next = "give --tokenizer DIR"});
  }
  side.context.add_bos = config.add_bos == "on" || (config.add_bos == "auto" && tokenizer->adds_bos());
  if (side.context.add_bos && !tokenizer->bos_id()) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "--add-bos on: the tokenizer has no begin-of-text token");
  }
  if (!config.chat_template) {
    if (!config.system.empty()) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "--system needs --chat-template");
    }
    if (config.chat_turns != "multi") {
      throw Error(ErrorCode::usage, ErrorSubject::general, "--chat-turns needs --chat-template");
    }
    if (tokenizer->chat_template(config.chat_template_name) && events) {
      events({Event::Level::warn, "HAY-W010",
              "the checkpoint has a chat template and looks instruct-tuned; prompts are plain text without "
              "--chat-template",
              ""});
    }
    return side;
  }
  side.context.chat = chat_renderer(load_chat_template(*tokenizer, config.chat_template_name, config.model), *tokenizer,
                                    config.clock.empty() ? local_clock() : parse_clock(config.clock));
  side.context.merge_turns = config.chat_turns == "merged";
  side.context.system = config.system;
  return side;
}

std::vector<std::unique_ptr<tasks::Task>> make_tasks(const RunConfig& config, const TextSide& text,
                                                     const EventSink& events) {
  std::vector<std::string> names;
  for (const std::string& name : config.tasks) names.push_back(name.starts_with("@") ? name.substr(1) : name);
  std::vector<std::unique_ptr<tasks::Task>> tasks;
  std::vector<std::string> usable;
  for (const std::string& name : tasks::expand_tasks(names)) {
    const tasks::TaskEntry& entry = tasks::find_task(name);
    for (const tasks::OptionDef& option : entry.options) usable.push_back(flag_of(entry, option));
    tasks.push_back(tasks::make_task(name, task_options(config, entry, events), text.context));
  }
  for (const auto& [flag, value] : config.task_options) {
    if (std::find(usable.begin(), usable.end(), flag) == usable.end()) {
      throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--{}: no task of this run has it", flag));
    }
  }
  return tasks;
}

std::vector<fs::path> share_dirs() {
  std::vector<fs::path> dirs;
  if (const std::string own = environment("HAYFORK_SHARE"); !own.empty()) dirs.emplace_back(own);
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  // A build folder inside the source tree, or wherever HAYFORK_SOURCE_DIR says it is; else an installed prefix.
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (fs::exists(folder / "datasets" / "haystack", ignored) && fs::exists(folder / "CMakeLists.txt", ignored)) {
      dirs.push_back(folder / "datasets");
      break;
    }
  }
  if (!program.empty()) dirs.push_back(program.parent_path().parent_path() / "share" / "hayfork");
  return dirs;
}

fs::path demo_dir() {
  std::vector<fs::path> candidates;
  if (const std::string own = environment("HAYFORK_DEMO"); !own.empty()) {
    candidates.emplace_back(own);
  } else {
    for (const fs::path& dir : share_dirs()) {
      candidates.push_back(dir / "demo");
      candidates.push_back(dir.parent_path() / "demo");
    }
  }
  std::string tried;
  std::error_code ignored;
  for (const fs::path& dir : candidates) {
    if (fs::is_directory(dir / "full", ignored)) return dir;
    tried += (tried.empty() ? "" : ", ") + dir.string();
  }
  throw Error(ErrorCode::not_found, ErrorSubject::data, "the demo checkpoints are not here",
              {.where = tried, .next = "run from the source tree, install the program, or set HAYFORK_DEMO"});
}

}  // namespace hayfork::cli
