#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parallel.h"
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

// One JSON object, in the benchmark's own format where it has one.
std::string sample_line(const tasks::Task& task, int64_t i, const engine::Tokenizer& tokenizer) {
  if (std::string row = task.upstream_row(i); !row.empty()) return row + "\n";
  return sample_json(i, task.sample(i), tokenizer).dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n";
}

// Samples of a plan are made by all threads, a block at a time, and printed in order.
class Printer {
 public:
  Printer(const engine::Tokenizer& tokenizer, const PromptOptions& options, Console& console)
      : tokenizer_(tokenizer), options_(options), console_(console) {}

  void print(const tasks::Task& task, int64_t first, int64_t end) {
    if (options_.format == "table") {
      for (int64_t i = first; i < end; ++i)
        if (const auto fault =
                attempt([&] { print_for_people(i, task.sample(i), tokenizer_, options_.ids, console_); }))
          tell(task, i, *fault);
      return;
    }
    constexpr int64_t kBlock = 16;
    for (int64_t from = first; from < end; from += kBlock) {
      const int64_t n = std::min(kBlock, end - from);
      std::vector<std::string> lines(static_cast<size_t>(n));
      std::vector<std::optional<Error>> faults(static_cast<size_t>(n));
      parallel_for(n, 1, [&](int64_t begin, int64_t stop) {
        for (int64_t k = begin; k < stop; ++k)
          faults[static_cast<size_t>(k)] =
              attempt([&] { lines[static_cast<size_t>(k)] = sample_line(task, from + k, tokenizer_); });
      });
      for (int64_t k = 0; k < n; ++k) {
        if (faults[static_cast<size_t>(k)])
          tell(task, from + k, *faults[static_cast<size_t>(k)]);
        else
          console_.out(lines[static_cast<size_t>(k)]);
      }
    }
  }

  int status() const { return status_; }

 private:
  // The fault of one document; the others go on. What is none of a document's is thrown.
  static std::optional<Error> attempt(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.subject() != ErrorSubject::data) throw;
      return error;
    }
    return std::nullopt;
  }

  void tell(const tasks::Task& task, int64_t i, const Error& error) {
    status_ = 4;
    console_.warn("HAY-W012", fmt::format("{} {}: {}", task.info().name, i, error.what()));
  }

  const engine::Tokenizer& tokenizer_;
  const PromptOptions& options_;
  Console& console_;
  int status_ = 0;
};

int run(const PromptOptions& options, Console& console) {
  RunConfig config = options.config;
  config.tasks = {options.task};
  const auto tokenizer = engine::Tokenizer::load(config.tokenizer.empty() ? model_folder(config.model)
                                                                          : std::filesystem::path(config.tokenizer));
  const TextSide text = text_side(config, tokenizer.get(), 0, {});
  const auto tasks = make_tasks(config, text, console.events());
  Printer printer(*tokenizer, options, console);
  for (const auto& task : tasks) {
    const int64_t n = task->n_samples();
    if (options.index && *options.index >= n) {
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  fmt::format("--index: {} has no sample {}", task->info().name, *options.index),
                  {.why = fmt::format("it has samples 0 to {}", n - 1)});
    }
    const int64_t first = options.index.value_or(0);
    printer.print(*task, first, options.index ? first + 1 : n);
  }
  return printer.status();
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
