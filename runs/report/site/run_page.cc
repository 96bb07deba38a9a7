// One run: results, plan against what came of it, time and memory, where it came from, what happened.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "base/units.h"
#include "runs/report/heatmap.h"
#include "runs/report/site/pages.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

constexpr const char* kHidden = "(redacted)";

std::string number(const OptReal& value) {
  return value ? fmt::format("{:.4g}", *value) : "–";
}

std::string interval(const MetricRow& row) {
  return row.ci_low && row.ci_high ? fmt::format("{:.4g} – {:.4g}", *row.ci_low, *row.ci_high) : "";
}

bool higher_is_better(const RunTaskView& task, const std::string& metric) {
  for (const MetricDefRow& def : task.metric_defs) {
    if (def.metric == metric) return def.higher_is_better;
  }
  return task.task.higher_is_better;
}

void results(const RunView& run, Html& html) {
  html.element("h2", "Results");
  if (run.tasks.empty()) return empty_state(html, "This run has no task.", "");
  PlainTable all{
      "", {"task", "metric", "value", "95 % interval", "n", "few-shot"}, {false, false, true, true, true, true}, {}};
  PlainTable slices{"every slice and metric",
                    {"task", "slice", "metric", "filter", "value", "95 % interval", "n"},
                    {false, false, false, false, true, true, true},
                    {}};
  for (const RunTaskView& task : run.tasks) {
    bool any = false;
    for (const MetricRow& row : task.metrics) {
      const std::string arrow = higher_is_better(task, row.metric) ? " ↑" : " ↓";
      slices.rows.push_back({task.task.name, row.slice.empty() ? "all" : row.slice, row.metric + arrow, row.filter,
                             number(row.value), interval(row), format_count(row.n)});
      if (!row.slice.empty() || row.metric != task.task.primary_metric || any) continue;
      any = true;
      all.rows.push_back({task.task.name, row.metric + arrow, number(row.value), interval(row), format_count(row.n),
                          std::to_string(task.row.num_fewshot) + (task.row.chat ? ", chat" : "")});
    }
    if (!any) all.rows.push_back({task.task.name, task.task.primary_metric, "–", "", "0", ""});
  }
  plain_table(html, all);
  details_table(html, slices);
}

void plan(const RunView& run, Html& html) {
  html.element("h2", "Plan and outcome");
  PlainTable table{"",
                   {"task", "status", "planned", "answered", "failed", "prompts cut", "answers at the budget", "time"},
                   {false, false, true, true, true, true, true, true},
                   {}};
  for (const RunTaskView& task : run.tasks) {
    const RunTaskRow& row = task.row;
    table.rows.push_back({task.task.name, row.status, format_count(row.n_planned), format_count(row.n_done),
                          format_count(row.n_failed), format_count(row.n_truncated), format_count(row.n_cut),
                          row.wall_s ? format_duration(*row.wall_s) : "–"});
  }
  plain_table(html, table);
}

std::string bar(double x, double y, double w, const char* kind) {
  return fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"16\"/>", kind, coordinate(x),
                     coordinate(y), coordinate(std::max(w, 0.5)));
}

// Bars of prefill and decode, a line a length, to the longest.
Graphic phase_bars(const std::vector<PhaseRow>& rows, const std::string& id) {
  constexpr double kWidth = 360, kLeft = 64, kRight = 70, kLine = 24;
  double longest = 0;
  for (const PhaseRow& row : rows) longest = std::max(longest, row.prefill_ms.value_or(0) + row.decode_ms.value_or(0));
  const double scale = longest > 0 ? (kWidth - kLeft - kRight) / longest : 0;
  std::string out;
  double y = 4;
  for (const PhaseRow& row : rows) {
    const double prefill = row.prefill_ms.value_or(0), decode = row.decode_ms.value_or(0);
    out += svg_text(kLeft - 8, y + 12.5, row.ctx_len ? length_label(*row.ctx_len) : "any", {12, "end", "soft"});
    out += bar(kLeft, y, prefill * scale, "fill0") + bar(kLeft + prefill * scale, y, decode * scale, "fill1");
    out += svg_text(kLeft + (prefill + decode) * scale + 6, y + 12.5, format_duration((prefill + decode) / 1000),
                    {12, "start", "ink"});
    y += kLine;
  }
  return Graphic(
      fmt::format("<svg class=\"chart\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
                  "aria-labelledby=\"{2}-t {2}-d\"><title id=\"{2}-t\">Prefill and decode by "
                  "length</title><desc id=\"{2}-d\">Time of the samples of each length, prefill then "
                  "decode; the table below has the numbers.</desc>{3}</svg>\n",
                  kWidth, coordinate(y), id, out));
}

void times(PageContext& page, const RunView& run, Html& html) {
  html.element("h2", "Time and memory");
  std::string line = run.run.wall_s ? "Wall clock " + format_duration(*run.run.wall_s) : "No wall clock was kept";
  if (run.run.gpu_busy) line += fmt::format(", device busy {:.0f} %", *run.run.gpu_busy * 100);
  if (run.run.peak_mem_bytes) line += ", peak memory " + format_bytes(static_cast<double>(*run.run.peak_mem_bytes));
  html.element("p", line + ".");
  std::vector<PhaseRow> rows = page.reader.phases(run.run.id);
  std::erase_if(rows, [](const PhaseRow& row) { return !row.prefill_ms && !row.decode_ms; });
  if (rows.empty()) return;
  html.graphic(phase_bars(rows, page.chart_id()));
  html.open("ul", {{"class", "legend"}});
  for (const auto& [kind, name] : {std::pair{"fill0", "prefill"}, {"fill1", "decode"}}) {
    html.open("li");
    html.graphic(
        Graphic(fmt::format("<svg class=\"key\" width=\"14\" height=\"14\" aria-hidden=\"true\"><rect class=\"{}\" "
                            "width=\"14\" height=\"14\"/></svg>",
                            kind)));
    html.text(std::string(" ") + name + ", summed over samples");
    html.close();
  }
  html.close();
  PlainTable table{"times as a table",
                   {"length", "samples", "prefill", "decode", "prompt tokens", "new tokens", "largest batch"},
                   {true, true, true, true, true, true, true},
                   {}};
  const auto count = [](const OptInt& n) { return n ? format_count(*n) : "–"; };
  const auto seconds = [](const OptReal& ms) { return ms ? format_duration(*ms / 1000) : "–"; };
  for (const PhaseRow& row : rows)
    table.rows.push_back({count(row.ctx_len), format_count(row.n), seconds(row.prefill_ms), seconds(row.decode_ms),
                          count(row.prompt_tokens), count(row.gen_tokens), count(row.batch_size)});
  details_table(html, table);
}

// ---- Where it came from --------------------------------------------------------------------------------------------

bool is_plain_word(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_./:=,+@%*").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// What a shell reads as the words of cli_json; the text itself when it is no list of words.
std::string command_of(const std::string& cli_json) {
  const auto words = nlohmann::json::parse(cli_json, nullptr, false);
  if (!words.is_array() || words.empty()) return cli_json == "[]" ? "" : cli_json;
  std::string out = "hayfork";
  for (const auto& word : words) {
    if (!word.is_string()) return cli_json;
    std::string text = word.get<std::string>();
    if (!is_plain_word(text)) {
      for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
      text = "'" + text + "'";
    }
    out += " " + text;
  }
  return out;
}

void fact(Html& html, const char* name, const std::string& value, bool code = false) {
  if (value.empty()) return;
  html.element("dt", name);
  html.open("dd");
  if (code)
    html.element("code", {{"data-copy", ""}}, value);
  else
    html.text(value);
  html.close();
}

std::string layer_summary(const RunView& run) {
  std::string out;
  for (size_t i = 0; i < run.layers.size();) {
    size_t j = i;
    while (j < run.layers.size() && run.layers[j].kind == run.layers[i].kind &&
           run.layers[j].window == run.layers[i].window)
      ++j;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", j - i, run.layers[i].kind);
    if (run.layers[i].window) out += fmt::format(" (window {})", *run.layers[i].window);
    i = j;
  }
  return out;
}

void provenance(const PageContext& page, const RunView& run, Html& html) {
  const bool redact = page.options.redact;
  const auto hidden = [&](const OptText& text) { return redact && text ? kHidden : text.value_or(""); };
  html.element("h2", "Provenance");
  html.open("dl", {{"class", "facts"}});
  fact(html, "model", run.model.name);
  fact(html, "architecture", run.model.arch_label.value_or(run.model.arch.value_or("")));
  fact(html, "layers", layer_summary(run));
  fact(html, "parameters", run.model.n_params ? format_count(*run.model.n_params) : "");
  fact(html, "training", run.model.train_tokens ? count_text(run.model.train_tokens) + " tokens" : "");
  fact(html, "path", hidden(run.model.path));
  if (!run.model.verified) fact(html, "weights", "unverified: imported, or not hashed");
  fact(html, "weights", run.model.weights_sha256.value_or(""), true);
  fact(html, "config", run.model.config_sha256.value_or(""), true);
  fact(html, "tokenizer", run.model.tokenizer_sha256.value_or(""), true);
  fact(html, "chat template", run.model.template_sha256.value_or(""), true);
  fact(html, "plan", run.run.plan_sha256, true);
  fact(html, "settings", run.run.config_sha256, true);
  fact(html, "sparse", run.sparse ? run.sparse->label : "");
  fact(html, "numerics", run.run.numerics_id.value_or(""));
  fact(html, "dtype", run.run.dtype.value_or("") + (run.run.kv_dtype ? ", cache " + *run.run.kv_dtype : ""));
  fact(html, "seed", run.run.seed ? std::to_string(*run.run.seed) : "each protocol's own");
  fact(html, "program",
       fmt::format("hayfork {} ({}{})", run.run.hayfork_version, run.run.git_commit.value_or("?").substr(0, 10),
                   run.run.git_dirty.value_or(0) != 0 ? ", changed" : ""));
  if (run.run.origin != "hayfork") fact(html, "origin", run.run.origin);
  if (run.host) {
    fact(html, "host", hidden(run.host->hostname));
    fact(html, "processor", run.host->cpu.value_or(""));
  }
  fact(html, "made", short_time(run.run.created_at) + " UTC");
  fact(html, "note", hidden(run.run.note));
  html.close();
  const std::string command = command_of(run.run.cli_json);
  if (command.empty()) return;
  html.element("h3", "Command");
  html.element("pre", {{"data-copy", ""}}, redact ? kHidden : command);
}

void attempts(const RunView& run, Html& html) {
  PlainTable table{fmt::format("{} attempt{}", run.attempts.size(), run.attempts.size() == 1 ? "" : "s"),
                   {"attempt", "shard", "device", "threads", "started", "time", "written", "peak memory", "ended"},
                   {true, true, false, true, false, true, true, true, false},
                   {}};
  for (const AttemptRow& row : run.attempts)
    table.rows.push_back({std::to_string(row.attempt), std::to_string(row.shard), row.device.value_or("–"),
                          row.threads ? std::to_string(*row.threads) : "–", short_time(row.started_at),
                          row.wall_s ? format_duration(*row.wall_s) : "–", format_count(row.n_written),
                          row.peak_mem_bytes ? format_bytes(static_cast<double>(*row.peak_mem_bytes)) : "–",
                          row.end_reason.value_or("running")});
  if (!table.rows.empty()) details_table(html, table);
}

void events(const RunView& run, Html& html) {
  html.element("h2", "Events");
  if (run.events.empty()) return html.element("p", {{"class", "soft"}}, "Nothing was worth a warning.");
  html.open("ul", {{"class", "events"}});
  for (const EventRow& event : run.events) {
    html.open("li");
    badge(html, event.level);
    html.text(" ");
    html.element("code", event.code);
    html.text(" " + (event.task ? *event.task + ": " : "") + event.message);
    html.element("span", {{"class", "soft"}}, "  " + short_time(event.at));
    html.close();
  }
  html.close();
}

void gate(PageContext& page, const RunView& run, Html& html) {
  const std::vector<ComparisonRow> rows = page.reader.comparisons(run.run.id);
  if (rows.empty()) return;
  html.element("h2", "Gate");
  PlainTable table{"",
                   {"task", "slice", "metric", "verdict", "Δ", "95 % interval", "p adjusted", "pairs", "test"},
                   {false, false, false, false, true, true, true, true, false},
                   {}};
  for (const ComparisonRow& row : rows)
    table.rows.push_back(
        {row.task, row.slice.empty() ? "all" : row.slice, row.metric, row.verdict,
         row.delta ? signed_number(*row.delta, 4) : "–",
         row.ci_low && row.ci_high ? signed_number(*row.ci_low, 4) + " – " + signed_number(*row.ci_high, 4) : "",
         row.p_adj ? fmt::format("{:.3g}", *row.p_adj) : "–", format_count(row.n_pairs), row.test});
  plain_table(html, table);
}

}  // namespace

void run_page(PageContext& page, const RunView& run, Html& html) {
  html.open("h1");
  html.text("Run " + run.run.run_id + " ");
  badge(html, run.status);
  html.close();
  html.element(
      "p", {{"class", "lead"}},
      fmt::format("{}{}{}, {} UTC.", run.run.name ? *run.run.name + ": " : "", run.model.name,
                  run.model.arch_label ? " (" + *run.model.arch_label + ")" : "", short_time(run.run.created_at)));
  html.open("p", {{"class", "links"}});
  if (page.options.samples != ShownSamples::none)
    html.link(page.href("samples-" + page_stem(run.run.run_id)), "Samples of this run");
  html.close();
  results(run, html);
  gate(page, run, html);
  plan(run, html);
  times(page, run, html);
  attempts(run, html);
  provenance(page, run, html);
  events(run, html);
}

}  // namespace hayfork::runs
