// Samples of a run beside the baseline's answers to the same documents: what got worse, what got better, what neither
// knows, what failed. Everything is in the page; the script filters, marks words that differ, and walks with j and k.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/units.h"
#include "runs/report/site/pages.h"
#include "runs/report/site/token_strip.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

struct Item {
  std::string kind;  // worse, better, both-wrong, same, wrong, failed, cut, other
  std::string task;
  int64_t cand = 0, base = 0;  // sample ids; base 0: no pair
};

constexpr const char* kKinds[] = {"worse", "better", "failed", "cut", "both-wrong", "wrong", "same", "other"};

std::string shown_kind(const std::string& kind) {
  return kind == "both-wrong" ? "both wrong" : kind;
}

std::string kind_of(const PairRow& pair) {
  if (!pair.gain) return "other";
  if (*pair.gain < 0) return "worse";
  if (*pair.gain > 0) return "better";
  return pair.cand_score && *pair.cand_score == 0 ? "both-wrong" : "same";
}

bool is_wanted(const std::string& kind, ShownSamples shown) {
  if (shown == ShownSamples::all || kind == "failed" || kind == "cut") return true;
  return shown == ShownSamples::flips && kind != "same" && kind != "other";
}

// What the page may show of one task, best reasons first, at most `limit` (0: all) with the same share for each kind
// as far as it has any.
std::vector<Item> choose(std::vector<Item> items, size_t limit) {
  if (limit == 0 || items.size() <= limit) return items;
  std::vector<std::vector<Item>> by_kind(std::size(kKinds));
  for (Item& item : items) {
    const auto at = std::find(std::begin(kKinds), std::end(kKinds), item.kind) - std::begin(kKinds);
    by_kind[static_cast<size_t>(at)].push_back(std::move(item));
  }
  std::vector<size_t> take(by_kind.size(), 0);
  for (size_t left = limit; left > 0;) {
    const size_t before = left;
    for (size_t k = 0; k < by_kind.size() && left > 0; ++k) {
      if (take[k] < by_kind[k].size()) ++take[k], --left;
    }
    if (left == before) break;
  }
  std::vector<Item> out;
  for (size_t k = 0; k < by_kind.size(); ++k)
    out.insert(out.end(), by_kind[k].begin(), by_kind[k].begin() + static_cast<std::ptrdiff_t>(take[k]));
  return out;
}

struct Gathered {
  std::vector<Item> items;
  size_t n_wanted = 0;
};

Gathered gather(PageContext& page, const RunView& run) {
  Gathered out;
  const bool paired = page.baseline && page.baseline->run.id != run.run.id;
  const auto n_tasks = std::max<size_t>(1, run.tasks.size());
  const auto limit = static_cast<size_t>(std::max<int64_t>(0, page.options.samples_a_run));
  const size_t each = limit == 0 ? 0 : std::max<size_t>(limit / n_tasks, std::min<size_t>(limit, 10));
  for (const RunTaskView& task : run.tasks) {
    std::map<int64_t, const PairRow*> pair_of;
    std::vector<PairRow> pairs;
    if (paired) pairs = page.store.pairs(page.baseline->run.id, run.run.id, task.task.name);
    for (const PairRow& pair : pairs) pair_of.emplace(pair.cand_sample, &pair);
    std::vector<Item> items;
    for (const ScoreRow& row : page.store.scores(task.row.id)) {
      Item item{"other", task.task.name, row.sample, 0};
      if (const auto it = pair_of.find(row.sample); it != pair_of.end()) {
        item.base = it->second->base_sample;
        item.kind = kind_of(*it->second);
      } else if (row.value && task.task.higher_is_better && *row.value == 0) {
        item.kind = "wrong";
      }
      if (!row.ok) item.kind = "failed";
      if (row.ok && row.truncated) item.kind = "cut";
      if (is_wanted(item.kind, page.options.samples)) items.push_back(std::move(item));
    }
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      const auto rank = [](const Item& i) { return std::find(std::begin(kKinds), std::end(kKinds), i.kind); };
      return std::pair(rank(a), a.cand) < std::pair(rank(b), b.cand);
    });
    out.n_wanted += items.size();
    for (Item& item : choose(std::move(items), each)) out.items.push_back(std::move(item));
  }
  return out;
}

// ---- One sample ----------------------------------------------------------------------------------------------------

std::string score_text(const SampleRow& row) {
  return row.score ? fmt::format("score {:.4g}", *row.score) : row.status;
}

void answer(PageContext& page, Html& html, const char* side, const std::string& who, const SampleRow& row) {
  html.open("div", {{"class", side}});
  html.element("h4", who + ", " + score_text(row));
  if (row.error) html.element("p", {{"class", "bad"}}, *row.error);
  if (page.options.redact)
    html.element("p", {{"class", "soft"}}, "(redacted)");
  else if (row.response)
    html.quote(row.response->text);
  else if (row.answer)
    html.quote(*row.answer);
  html.close();
}

// Softmax over the options' log-probabilities.
std::vector<double> shares(const std::vector<SampleChoiceRow>& choices) {
  double top = -INFINITY, sum = 0;
  for (const SampleChoiceRow& c : choices) top = std::max(top, c.logprob.value_or(-INFINITY));
  std::vector<double> out;
  for (const SampleChoiceRow& c : choices)
    out.push_back(std::isfinite(top) ? std::exp(c.logprob.value_or(-INFINITY) - top) : 0);
  for (const double v : out) sum += v;
  for (double& v : out) v = sum > 0 ? v / sum : 0;
  return out;
}

Graphic share_bars(double base, double cand, bool paired) {
  const auto bar = [](double y, double v, const char* kind) {
    return fmt::format("<rect class=\"{}\" x=\"0\" y=\"{}\" width=\"{}\" height=\"7\"/>", kind, coordinate(y),
                       coordinate(std::max(0.5, v * 120)));
  };
  return Graphic("<svg width=\"120\" height=\"18\" viewBox=\"0 0 120 18\" aria-hidden=\"true\">" +
                 (paired ? bar(1, base, "fill2") : "") + bar(paired ? 10 : 5, cand, "fill0") + "</svg>");
}

void choices(Html& html, const SampleRow* base, const SampleRow& cand) {
  if (cand.choices.empty()) return;
  const bool paired = base != nullptr && base->choices.size() == cand.choices.size();
  const std::vector<double> b = paired ? shares(base->choices) : std::vector<double>(cand.choices.size()),
                            c = shares(cand.choices);
  const auto logprob = [](const OptReal& v) { return v ? fmt::format("{:.3f}", *v) : "–"; };
  html.open("div", {{"class", "scroll"}});
  html.open("table");
  html.open("thead");
  html.open("tr");
  html.element("th", "option");
  html.element("th", paired ? "share: baseline above, this run below" : "share");
  if (paired) html.element("th", {{"class", "num"}}, "baseline's log-probability");
  html.element("th", {{"class", "num"}}, "log-probability");
  html.close();
  html.close();
  html.open("tbody");
  for (size_t i = 0; i < cand.choices.size(); ++i) {
    html.open("tr");
    html.element("td", fmt::format("{}{}", cand.choices[i].choice, cand.choices[i].gold ? " ✓ right" : ""));
    html.open("td");
    html.graphic(share_bars(b[i], c[i], paired));
    html.close();
    if (paired) html.element("td", {{"class", "num"}}, logprob(base->choices[i].logprob));
    html.element("td", {{"class", "num"}}, logprob(cand.choices[i].logprob));
    html.close();
  }
  html.close();
  html.close();
  html.close();
}

void prompt(const PageContext& page, Html& html, const SampleRow& row) {
  html.open("details");
  html.element("summary",
               row.prompt_tokens ? fmt::format("prompt, {} tokens", format_count(*row.prompt_tokens)) : "prompt");
  if (page.options.redact)
    html.element("p", {{"class", "soft"}}, "(redacted)");
  else if (row.prompt_text)
    html.quote_marked(row.prompt_text->text, row.target.value_or(""), 4000);
  else
    html.element("p", {{"class", "soft"}},
                 "Too long to be stored: hayfork show prompt makes it again from the run's settings.");
  html.close();
}

void article(PageContext& page, const RunView& run, const Item& item, Html& html) {
  const SampleRow cand = page.store.show_sample(item.cand).sample;
  std::optional<SampleRow> base;
  if (item.base != 0) base = page.store.show_sample(item.base).sample;
  const auto number = [](const OptInt& n) { return n ? std::to_string(*n) : ""; };
  const std::string id = fmt::format("s={}", item.cand);
  const std::string depth = cand.depth_pct ? fmt::format("{:g}", *cand.depth_pct) : "";
  html.open("article", {{"class", "sample"},
                        {"id", id},
                        {"tabindex", "-1"},
                        {"data-kind", item.kind},
                        {"data-task", item.task},
                        {"data-length", number(cand.ctx_len)},
                        {"data-depth", depth},
                        {"data-subtask", cand.subtask.value_or("")}});
  html.open("header");
  html.open("h3");
  html.link("#" + id, item.task + " · " + cand.doc_id);
  html.close();
  badge(html, shown_kind(item.kind));
  std::string where;
  if (cand.ctx_len) where += "length " + format_count(*cand.ctx_len);
  if (cand.depth_pct) where += fmt::format("{}depth {} %", where.empty() ? "" : ", ", depth);
  if (cand.subtask) where += (where.empty() ? "" : ", ") + *cand.subtask;
  if (cand.truncated) where += (where.empty() ? "" : ", ") + std::string("prompt was cut");
  if (!where.empty()) html.element("span", {{"class", "soft"}}, where);
  if (base && base->prompt_sha256 != cand.prompt_sha256) html.element("span", {{"class", "soft"}}, "prompts differ");
  html.close();
  const std::string cand_who = run.run.run_id + " " + run.model.name,
                    base_who = base ? page.baseline->run.run_id + " " + page.baseline->model.name : "";
  html.open("div", {{"class", "pair"}});
  if (base) answer(page, html, "base", base_who, *base);
  answer(page, html, "cand", cand_who, cand);
  if (cand.target && !page.options.redact) {
    html.open("div", {{"class", "target"}});
    html.element("h4", "target");
    html.quote(*cand.target, 2000);
    html.close();
  }
  html.close();
  choices(html, base ? &*base : nullptr, cand);
  token_strips(page, html, {{base_who, base ? &*base : nullptr}, {cand_who, &cand}});
  prompt(page, html, cand);
  html.close();
}

// ---- The tools above -----------------------------------------------------------------------------------------------

void pick(Html& html, const char* by, const char* label,
          const std::vector<std::pair<std::string, std::string>>& values) {
  if (values.size() < 2) return;
  html.open("label");
  html.text(std::string(label) + " ");
  html.open("select", {{"data-by", by}});
  html.element("option", {{"value", ""}}, "all");
  for (const auto& [value, text] : values) html.element("option", {{"value", value}}, text);
  html.close();
  html.close();
}

// Length, depth and subtask of the items in hand are read with them, so these selects are filled by what was written.
struct Seen {
  std::set<std::string> kinds, tasks;
  std::set<int64_t> lengths;
  std::set<double> depths;
  std::set<std::string> subtasks;
};

Seen seen_of(PageContext& page, const RunView& run, const std::vector<Item>& items) {
  Seen seen;
  std::set<int64_t> ids;
  for (const Item& item : items) {
    seen.kinds.insert(item.kind);
    seen.tasks.insert(item.task);
    ids.insert(item.cand);
  }
  for (const RunTaskView& task : run.tasks) {
    for (const ScoreRow& row : page.store.scores(task.row.id)) {
      if (!ids.contains(row.sample)) continue;
      if (row.ctx_len) seen.lengths.insert(*row.ctx_len);
      if (row.depth_pct) seen.depths.insert(*row.depth_pct);
      if (row.subtask) seen.subtasks.insert(*row.subtask);
    }
  }
  return seen;
}

void tools(Html& html, const Seen& seen, bool paired) {
  using Values = std::vector<std::pair<std::string, std::string>>;
  html.open("div", {{"class", "tools"}});
  Values kinds, tasks, lengths, depths, subtasks;
  for (const char* kind : kKinds) {
    if (seen.kinds.contains(kind)) kinds.emplace_back(kind, shown_kind(kind));
  }
  for (const std::string& task : seen.tasks) tasks.emplace_back(task, task);
  for (const int64_t length : seen.lengths) lengths.emplace_back(std::to_string(length), format_count(length));
  for (const double d : seen.depths) depths.emplace_back(fmt::format("{:g}", d), fmt::format("{:g} %", d));
  for (const std::string& subtask : seen.subtasks) subtasks.emplace_back(subtask, subtask);
  pick(html, "kind", "Show", kinds);
  pick(html, "task", "Task", tasks);
  pick(html, "length", "Length", lengths);
  pick(html, "depth", "Depth", depths);
  pick(html, "subtask", "Subtask", subtasks);
  if (paired) {
    html.open("label");
    html.single("input", {{"type", "checkbox"}, {"data-diff", ""}, {"checked", ""}});
    html.text(" mark words that differ");
    html.close();
  }
  html.element("output", {{"class", "soft"}}, "");
  html.element("span", {{"class", "soft"}}, "j, k: next, previous");
  html.close();
}

}  // namespace

void samples_page(PageContext& page, const RunView& run, Html& html) {
  const bool paired = page.baseline && page.baseline->run.id != run.run.id;
  page_title(html, "Samples of " + run.run.run_id,
             run.model.name + (paired ? fmt::format(", beside {} of {} ({}).", page.baseline->run.run_id,
                                                    page.baseline->model.name, page.baseline_why)
                                      : std::string(".")));
  html.open("p", {{"class", "links"}});
  page.run_link(html, run.run.run_id);
  html.close();
  const Gathered gathered = gather(page, run);
  if (gathered.items.empty())
    return empty_state(html,
                       paired ? "Nothing differs from the baseline's answers, and nothing failed."
                              : "No sample failed, and none was wrong.",
                       "hayfork report --include-samples all");
  if (gathered.items.size() < gathered.n_wanted)
    html.element(
        "p", {{"class", "note"}},
        fmt::format("{} of {} samples, every kind with its share; --samples-a-run 0 shows all, and hayfork export "
                    "samples {} writes all.",
                    gathered.items.size(), format_count(static_cast<int64_t>(gathered.n_wanted)), run.run.run_id));
  html.open("div", {{"class", "samples"}});
  tools(html, seen_of(page, run, gathered.items), paired);
  for (const Item& item : gathered.items) article(page, run, item, html);
  html.close();
}

}  // namespace hayfork::runs
