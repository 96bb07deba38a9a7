#include "cli/dry_run.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/units.h"
#include "cli/calibration.h"

namespace hayfork::cli {
namespace {

using runs::Align;
using runs::Cell;
using runs::CellType;

// Prompts are made for the engine to look at, but not all of a large plan: so many tokens a length, the rest in
// proportion.
constexpr int64_t kTokensLookedAt = 2'000'000;

struct Line {
  std::string task;
  std::optional<int64_t> length;
  int64_t n_samples = 0, prompt_tokens = 0, new_tokens = 0, rows = 0, peak_bytes = 0;
  int32_t batch = 0;
  std::optional<double> seconds;
  std::string when;
};

// The plan indices of each length of a task.
std::map<std::optional<int64_t>, std::vector<int64_t>> by_length(const tasks::Task& task) {
  std::map<std::optional<int64_t>, std::vector<int64_t>> lengths;
  for (int64_t i = 0; i < task.n_samples(); ++i) lengths[task.key(i).ctx_len].push_back(i);
  return lengths;
}

Line estimate(const Plan& plan, const tasks::Task& task, const std::optional<int64_t>& length,
              const std::vector<int64_t>& indices) {
  Line line{.task = task.info().name, .length = length, .n_samples = static_cast<int64_t>(indices.size())};
  std::vector<engine::Request> requests;
  int64_t n_seen = 0, tokens = 0;
  for (const int64_t i : indices) {
    if (tokens > kTokensLookedAt) break;
    tasks::Sample sample = task.sample(i);
    ++n_seen;
    tokens += sample.prompt_tokens;
    for (engine::Request& request : sample.requests) requests.push_back(std::move(request));
  }
  const engine::WorkPlan work = plan.engine->plan(requests);
  const double scale = n_seen > 0 ? static_cast<double>(indices.size()) / static_cast<double>(n_seen) : 0;
  const auto scaled = [scale](int64_t n) { return static_cast<int64_t>(static_cast<double>(n) * scale + 0.5); };
  line.prompt_tokens = scaled(work.prompt_tokens);
  line.new_tokens = scaled(work.new_tokens);
  line.rows = scaled(work.rows_planned);
  line.batch = work.batch_size;
  line.peak_bytes = work.peak_bytes;
  if (const auto speed = known_speed(plan.engine->info(), length.value_or(tokens / std::max<int64_t>(n_seen, 1)))) {
    line.seconds = static_cast<double>(line.rows) / speed->prefill_rows_per_s;
    if (speed->decode_rows_per_s > 0) *line.seconds += static_cast<double>(line.new_tokens) / speed->decode_rows_per_s;
    line.when = speed->when;
  }
  return line;
}

}  // namespace

void print_dry_run(const Plan& plan, const OutputOptions& output, Console& console) {
  runs::Section section{
      .name = "plan",
      .table = {{{.name = "task"},
                 {.name = "length", .align = Align::right, .type = CellType::integer},
                 {.name = "samples", .align = Align::right, .type = CellType::integer},
                 {.name = "prompt_tokens", .align = Align::right, .type = CellType::integer, .title = "prompt tokens"},
                 {.name = "rows", .align = Align::right, .type = CellType::integer, .title = "rows after reuse"},
                 {.name = "new_tokens", .align = Align::right, .type = CellType::integer, .title = "new tokens"},
                 {.name = "batch", .align = Align::right, .type = CellType::integer},
                 {.name = "peak_bytes", .align = Align::right, .type = CellType::bytes, .title = "peak mem"},
                 {.name = "seconds", .align = Align::right, .type = CellType::duration, .title = "est. time"}},
                {}}};
  Line total;
  double seconds = 0;
  bool all_timed = true;
  for (const auto& task : plan.tasks) {
    for (const auto& [length, indices] : by_length(*task)) {
      const Line line = estimate(plan, *task, length, indices);
      section.table.rows.push_back({line.task, line.length ? Cell(*line.length) : Cell(), line.n_samples,
                                    line.prompt_tokens, line.rows, line.new_tokens, static_cast<int64_t>(line.batch),
                                    line.peak_bytes, line.seconds ? Cell(*line.seconds) : Cell()});
      total.n_samples += line.n_samples;
      total.prompt_tokens += line.prompt_tokens;
      total.rows += line.rows;
      total.new_tokens += line.new_tokens;
      all_timed = all_timed && line.seconds.has_value();
      seconds += line.seconds.value_or(0);
      total.when = std::max(total.when, line.when);
    }
  }
  const engine::ModelInfo& info = plan.engine->info();
  console.note(fmt::format(
      "plan  {}  {} tasks, {} samples, {} prompt tokens ({} after prefix reuse), {} new tokens at most  {} {}",
      info.name, plan.tasks.size(), format_count(total.n_samples), format_count(total.prompt_tokens),
      format_count(total.rows), format_count(total.new_tokens), info.device, info.dtype));
  section.notes.push_back(
      all_timed && seconds > 0
          ? fmt::format("total ~{} (as fast as the run of {})   nothing was run", format_duration(seconds), total.when)
          : "no time estimate: this model was not run here yet   nothing was run");
  print(console, {"dry-run", {std::move(section)}}, output);
}

}  // namespace hayfork::cli
