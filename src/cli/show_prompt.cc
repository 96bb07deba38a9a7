#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/engine_flags.h"
#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

using nlohmann::ordered_json;

struct PromptOptions {
  RunConfig config;
  std::string task, format = "table";
  std::optional<int64_t> index;
  bool ids = false;
};

std::span<const int32_t> context_ids(const engine::Request& request) {
  if (const auto* score = std::get_if<engine::ScoreRequest>(&request)) return score->context;
  if (const auto* nll = std::get_if<engine::NllRequest>(&request)) return nll->tokens;
  return std::get<engine::GenerateRequest>(request).prompt;
}

ordered_json request_json(const engine::Request& request, const engine::Tokenizer& tokenizer) {
  const auto ids = context_ids(request);
  ordered_json out = {{"context", tokenizer.decode(ids, false)},
                      {"context_ids", std::vector<int32_t>(ids.begin(), ids.end())}};
  if (const auto* score = std::get_if<engine::ScoreRequest>(&request)) {
    out["requests"] = ordered_json::array();
    for (const auto& continuation : score->continuations) {
      out["requests"].push_back(
          {{"continuation", tokenizer.decode(continuation, false)}, {"continuation_ids", continuation}});
    }
  } else if (const auto* generate = std::get_if<engine::GenerateRequest>(&request)) {
    out["max_new_tokens"] = generate->max_new_tokens;
    out["stop"] = generate->stops;
  }
  return out;
}

ordered_json sample_json(int64_t index, const tasks::Sample& sample, const engine::Tokenizer& tokenizer) {
  ordered_json out = {{"schema", "hayfork/prompt/1"},
                      {"index", index},
                      {"doc_id", sample.doc_id},
                      {"doc_sha256", sample.doc_sha256},
                      {"repeat", sample.repeat}};
  if (sample.subtask) out["subtask"] = *sample.subtask;
  if (sample.ctx_len) out["ctx_len"] = *sample.ctx_len;
  if (sample.depth_pct) out["depth_pct"] = *sample.depth_pct;
  if (sample.depth_real) out["depth_real"] = *sample.depth_real;
  if (sample.needle_tok) out["needle_tok"] = *sample.needle_tok;
  if (sample.needle_tokens) out["needle_tokens"] = *sample.needle_tokens;
  if (sample.needle_distance) out["needle_distance"] = *sample.needle_distance;
  out["prompt_tokens"] = sample.prompt_tokens;
  out["prompt_sha256"] = sample.prompt_sha256;
  out["ids_sha256"] = sample.ids_sha256;
  out["targets"] = sample.targets;
  if (sample.requests.size() == 1) {
    out.update(request_json(sample.requests.front(), tokenizer));
  } else {
    out["parts"] = ordered_json::array();
    for (const engine::Request& request : sample.requests) out["parts"].push_back(request_json(request, tokenizer));
  }
  return out;
}

std::string ids_line(std::span<const int32_t> ids) {
  std::string text = "ids  [";
  for (size_t i = 0; i < ids.size(); ++i) text += (i == 0 ? "" : " ") + std::to_string(ids[i]);
  return text + "]";
}

void print_for_people(int64_t index, const tasks::Sample& sample, const engine::Tokenizer& tokenizer, bool ids,
                      Console& console) {
  std::string head = fmt::format("{} {}", index, sample.doc_id);
  if (sample.ctx_len) head += fmt::format("  length {}", *sample.ctx_len);
  if (sample.depth_pct) head += fmt::format("  depth {:g} %", *sample.depth_pct);
  if (sample.depth_real) head += fmt::format(" (reached {:.1f} %)", *sample.depth_real);
  if (sample.needle_tok) head += fmt::format("  needle at token {}", *sample.needle_tok);
  if (sample.needle_distance) head += fmt::format(", {} before the question", *sample.needle_distance);
  console.out(console.styled(Style::bold, head, false) + "\n");
  for (const engine::Request& request : sample.requests) {
    const auto context = context_ids(request);
    int64_t n_bos = 0;
    for (const int32_t id : context) n_bos += tokenizer.bos_id() && id == *tokenizer.bos_id() ? 1 : 0;
    if (ids) console.out(ids_line(context) + "\n");
    console.out(fmt::format("n={}  bos×{}  sha {}\n{}\n", context.size(), n_bos, sample.prompt_sha256.substr(0, 8),
                            printable(tokenizer.decode(context, false))));
    if (const auto* score = std::get_if<engine::ScoreRequest>(&request)) {
      for (const auto& continuation : score->continuations) {
        console.out(fmt::format("→ {}\n", printable(tokenizer.decode(continuation, false))));
        if (ids) console.out(ids_line(continuation) + "\n");
      }
    }
  }
  std::string targets;
  for (const std::string& target : sample.targets) targets += (targets.empty() ? "" : " | ") + printable(target);
  if (!targets.empty()) console.out(fmt::format("target  {}\n", targets));
}

void print_sample(const tasks::Task& task, int64_t i, const engine::Tokenizer& tokenizer, const PromptOptions& options,
                  Console& console) {
  if (options.format != "table") {
    if (const std::string row = task.upstream_row(i); !row.empty()) {
      console.out(row + "\n");  // a benchmark with a file format of its own
      return;
    }
  }
  const tasks::Sample sample = task.sample(i);
  if (options.format == "table") {
    print_for_people(i, sample, tokenizer, options.ids, console);
  } else {
    console.out(sample_json(i, sample, tokenizer).dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n");
  }
}

int run(const PromptOptions& options, Console& console) {
  RunConfig config = options.config;
  config.tasks = {options.task};
  const auto tokenizer = engine::Tokenizer::load(config.tokenizer.empty() ? model_folder(config.model)
                                                                          : std::filesystem::path(config.tokenizer));
  const TextSide text = text_side(config, tokenizer.get(), 0, {});
  const auto tasks = make_tasks(config, text, console.events());
  int status = 0;
  for (const auto& task : tasks) {
    const int64_t n = task->n_samples();
    if (options.index && *options.index >= n) {
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  fmt::format("--index: {} has no sample {}", task->info().name, *options.index),
                  {.why = fmt::format("it has samples 0 to {}", n - 1)});
    }
    const int64_t first = options.index.value_or(0);
    const int64_t end = options.index ? first + 1 : n;
    for (int64_t i = first; i < end; ++i) {
      try {
        print_sample(*task, i, *tokenizer, options, console);
      } catch (const Error& error) {  // this document's; the others go on
        if (error.subject() != ErrorSubject::data) throw;
        status = 4;
        console.warn("HAY-W012", fmt::format("{} {}: {}", task->info().name, i, error.what()));
      }
    }
  }
  return status;
}

}  // namespace

Action declare_show_prompt(Flags& flags) {
  auto options = std::make_shared<PromptOptions>();
  FlagInfo& task = flags.argument("TASK", options->task, "Which task.");
  task.required = true;
  task.kind = "task";
  flags.group("Which samples");
  flags.count("index", options->index, "N", "Only this one, counted from 0. Default: all of the plan (see --limit).")
      .configurable = false;
  flags.toggle("ids", options->ids, "Token ids as well.").configurable = false;
  FlagInfo& model =
      flags.text("model", options->config.model, "M", "Checkpoint folder: its tokenizer and hayfork.json decide.");
  model.required = true;
  model.kind = "dir";
  flags.text("tokenizer", options->config.tokenizer, "DIR", "Another tokenizer than the checkpoint's own.").kind =
      "dir";
  declare_plan(flags, options->config);
  flags.group("Output");
  flags.choice("o,format", options->format, {"table", "jsonl"}, "For people, or one JSON object a sample.");
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
