#include "tasks/opencompass.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "engine/text/tokenizer.h"
#include "tasks/choice_score.h"
#include "tasks/extras.h"
#include "tasks/fewshot_task.h"
#include "tasks/fold.h"
#include "tasks/pair_ids.h"

namespace hayfork::tasks {
namespace {

using engine::ScoreRequest;
using nlohmann::json;
using nlohmann::ordered_json;

// How many ids all begin with, one less than the shortest at most: every option keeps an id of its own.
size_t common_prefix(const std::vector<Ids>& all) {
  size_t n = all.front().size();
  for (const Ids& ids : all) n = std::min(n, ids.size());
  if (n == 0) throw Error(ErrorCode::corrupt, ErrorSubject::data, "an option has no ids");
  --n;
  for (const Ids& ids : all)
    n = static_cast<size_t>(
        std::mismatch(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), all.front().begin()).first -
        ids.begin());
  return n;
}

std::string without(std::string text, const std::string& part) {
  if (part.empty()) return text;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
  return text;
}

class OcpTask : public FewshotTask {
 public:
  OcpTask(const OcpForm& form, const TaskOptions& options, const TextContext& text)
      : FewshotTask(form.base, options, text, [&form, &options](Split& split) { expand(form, options, split); }),
        ocp_(form) {
    check_extras(options, {}, form.base.name);
    info_.kind = "choice";
    info_.metrics = {{form_.primary}};
    if (!form.suffix) info_.metrics.push_back({"acc_tokens"});
    finish_info(json{{"scoring", form.suffix ? "ll" : "ppl_full"}}.dump());
  }

  Sample sample(int64_t index) const override {
    const std::vector<std::string> texts = prompts(index);
    Sample out = described_sample(key(index), texts.front());
    out.targets = {document(index).target};
    out.recipe_json = recipe(index);
    const std::string where = split_.where(index);
    add_requests(texts, ocp_.suffix ? ocp_.suffix(Fields(split_.value(index), where)) : "", out);
    const Ids whole = encode_whole(text_, texts.front());
    out.ids_sha256 = ids_sha256(whole);
    out.prompt_tokens = static_cast<int64_t>(whole.size());
    return out;
  }

  std::string upstream_row(int64_t index) const override {
    const Document shown = document(index);
    const std::vector<std::string> texts = prompts(index);
    ordered_json row = {{"task", form_.name},
                        {"doc_id", index},
                        {"choices", shown.choices},
                        {"gold", shown.gold},
                        {"doc_hash", key(index).doc_sha256},
                        {"prompt_hash", sha256_hex(texts.front())}};
    row["requests"] = ordered_json::array();
    for (const std::string& text : texts)
      row["requests"].push_back({{"text", text}, {"ids", encode_whole(text_, text)}});
    return row.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
  }

  SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const override {
    const Document shown = document(index_of(sample));
    std::vector<ChoiceValue> choices;
    for (const engine::Answer& answer : answers) {
      if (const auto* failure = std::get_if<engine::Failure>(&answer.result)) {
        SampleScore out;
        out.status = Status::failed;
        out.error = failure->message;
        return out;
      }
      const auto& result = std::get<engine::ScoreAnswer>(answer.result);
      for (const engine::ContinuationScore& c : result.continuations) {
        ChoiceValue value;
        value.logprob = c.logprob;
        value.greedy = c.is_greedy;
        value.n_tokens = static_cast<int64_t>(c.token_logprobs.size());
        value.gold = static_cast<int64_t>(choices.size()) == shown.gold;
        if (!ocp_.suffix) {
          value.ctx_nll = result.context_nll;
          value.ctx_tokens = result.context_nll_tokens + 1;
        }
        choices.push_back(value);
      }
    }
    HAY_CHECK(choices.size() == shown.choices.size());
    return score_choices(shown, choices, form_.primary, form_.primary);
  }

  std::optional<SampleScore> rescore(const SampleKey& key, std::span<const ChoiceValue> choices,
                                     const std::string& /*response*/) const override {
    return score_choices(document(index_of(key)), choices, form_.primary, form_.primary);
  }

  // top_choice_share: of the option chosen most often; 1 means that the model chose the same one every time and has
  // learnt nothing from this task.
  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    std::vector<Aggregate> out = fold_choices(rows, false);
    std::map<double, int64_t> chosen;
    int64_t n = 0, most = 0;
    for (const FoldRow& row : rows)
      for (const MetricValue& m : row.metrics)
        if (m.metric == "pred" && m.value && row.status == Status::ok) {
          ++n;
          most = std::max(most, ++chosen[*m.value]);
        }
    Aggregate share;
    share.metric = "top_choice_share";
    share.n = n;
    if (n > 0) share.value = static_cast<double>(most) / static_cast<double>(n);
    out.push_back(std::move(share));
    return out;
  }

 private:
  // Rows of further splits behind the first; one question a row.
  static void expand(const OcpForm& form, const TaskOptions& options, Split& split) {
    if (!form.expand && form.more_splits.empty()) return;
    std::vector<Split> parts = {split};
    for (const std::string& more : form.more_splits)
      parts.push_back(open_split(options, form.base.data, more, form.base.name));
    auto all = std::make_shared<datasets::Records>();
    std::string digests;
    for (const Split& part : parts) {
      all->name += (all->name.empty() ? "" : " + ") + part.records->name;
      digests += part.records->sha256;
      for (int64_t i = 0; i < part.size(); ++i) append(form, part, i, *all);
    }
    all->sha256 = parts.size() == 1 ? parts[0].records->sha256 : sha256_hex(digests);
    split.rows.clear();
    for (size_t i = 0; i < all->rows.size(); ++i) split.rows.push_back(i);
    split.records = std::move(all);
  }

  static void append(const OcpForm& form, const Split& part, int64_t i, datasets::Records& all) {
    const datasets::Record& record = part.row(i);
    if (record.value == nullptr || !form.expand) {
      all.rows.push_back(record);
      return;
    }
    const std::string where = part.where(i);
    try {
      for (ordered_json& one : form.expand(Fields(*record.value, where)))
        all.rows.push_back({std::make_shared<const ordered_json>(std::move(one)), record.line, {}});
    } catch (const Error& error) {  // the row becomes one failed sample
      all.rows.push_back({nullptr, record.line, error.what()});
    }
  }

  std::vector<std::string> prompts(int64_t index) const {
    std::vector<std::string> where;
    std::vector<Fields> demonstrations;
    where.reserve(shots(index).size());
    for (const int64_t row : shots(index)) {
      where.push_back(pool_.where(row));
      demonstrations.emplace_back(pool_.value(row), where.back());
    }
    const std::string own = split_.where(index);
    return ocp_.prompts(Fields(split_.value(index), own), demonstrations);
  }

  void add_requests(const std::vector<std::string>& texts, const std::string& suffix, Sample& out) const {
    std::vector<Ids> all;
    for (const std::string& text : texts) {
      all.push_back(encode_whole(text_, text));
      if (text_.window > 0 && static_cast<int64_t>(all.back().size()) > text_.window)
        throw Error(ErrorCode::corrupt, ErrorSubject::data, "the question is longer than the model's window",
                    {.why = fmt::format("{} tokens, the window is {}", all.back().size(), text_.window)});
    }
    if (ocp_.suffix) {
      for (size_t j = 0; j < all.size(); ++j) {
        const size_t n = encode_whole(text_, without(texts[j], suffix)).size();
        out.requests.emplace_back(split_at(std::move(all[j]), n, false));
      }
      return;
    }
    const size_t n = common_prefix(all);
    if (n == 0) {
      for (Ids& ids : all) out.requests.emplace_back(split_at(std::move(ids), 1, true));
      return;
    }
    ScoreRequest request = split_at(all.front(), n, true);
    for (size_t j = 1; j < all.size(); ++j)
      request.continuations.emplace_back(all[j].begin() + static_cast<std::ptrdiff_t>(n), all[j].end());
    out.requests.emplace_back(std::move(request));
  }

  static ScoreRequest split_at(Ids ids, size_t n, bool with_context) {
    if (n == 0 || n >= ids.size())
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "an option cannot be scored",
                  {.why = "its ids do not go on behind the context's"});
    const auto border = ids.begin() + static_cast<std::ptrdiff_t>(n);
    return {Ids(ids.begin(), border), {Ids(border, ids.end())}, with_context};
  }

  const OcpForm ocp_;
};

const OcpForm& ocp_form(const std::string& name) {
  static const std::vector<OcpForm> kForms = opencompass_forms();
  for (const OcpForm& form : kForms)
    if (form.base.name == name) return form;
  HAY_CHECK(false, name);
}

std::unique_ptr<Task> make_ocp(const std::string& name, const TaskOptions& options, const TextContext& text) {
  TaskOptions fixed = options;
  if (options.num_fewshot && *options.num_fewshot != ocp_form(name).base.num_fewshot)
    throw Error(ErrorCode::usage, ErrorSubject::general, "the number of examples is part of OpenCompass's protocol",
                {name, fmt::format("it has {}", ocp_form(name).base.num_fewshot), "leave out --num-fewshot"});
  return std::make_unique<OcpTask>(ocp_form(name), fixed, text);
}

const Aggregate* primary_of(const std::vector<Aggregate>& aggregates) {
  for (const char* metric : {"acc_ppl_full", "acc"})
    for (const Aggregate& a : aggregates)
      if (a.slice.empty() && a.metric == metric && a.value) return &a;
  return nullptr;
}

// The plain mean of the tasks of each row of the table, then of the rows; a row needs all its tasks, the mean all rows.
std::vector<Aggregate> fold_rows(const std::map<std::string, std::vector<Aggregate>>& members,
                                 const std::set<std::string>& rows, bool with_rows) {
  std::map<std::string, std::vector<const Aggregate*>> found;
  for (const OcpForm& form : opencompass_forms()) {
    if (!rows.empty() && !rows.contains(form.row)) continue;
    const auto member = members.find(form.base.name);
    found[form.row].push_back(member == members.end() ? nullptr : primary_of(member->second));
  }
  std::vector<Aggregate> out;
  Aggregate mean;
  mean.metric = "acc";
  double sum = 0;
  bool whole = true;
  for (const auto& [row, values] : found) {
    Aggregate one;
    one.slice = "row=" + row;
    one.metric = "acc";
    double total = 0;
    bool complete = true;
    for (const Aggregate* a : values) {
      complete = complete && a != nullptr;
      if (a == nullptr) continue;
      total += *a->value;
      one.n += a->n;
    }
    if (complete) one.value = total / static_cast<double>(values.size());
    whole = whole && complete;
    sum += one.value.value_or(0);
    mean.n += one.n;
    if (with_rows) out.push_back(std::move(one));
  }
  if (whole) mean.value = sum / static_cast<double>(found.size());
  out.insert(out.begin(), std::move(mean));
  return out;
}

using Members = std::map<std::string, std::vector<Aggregate>>;
std::vector<Aggregate> fold_mmlu(const Members& members) {
  return fold_rows(members, {"MMLU"}, false);
}
std::vector<Aggregate> fold_ceval(const Members& members) {
  return fold_rows(members, {"C-Eval"}, false);
}
std::vector<Aggregate> fold_cmmlu(const Members& members) {
  return fold_rows(members, {"CMMLU"}, false);
}
std::vector<Aggregate> fold_all(const Members& members) {
  return fold_rows(members, {}, true);
}

}  // namespace

std::string ocp_fill(std::string text, const std::vector<std::pair<std::string, std::string>>& fields) {
  for (const auto& [name, value] : fields) {
    const std::string place = "{" + name + "}";
    for (size_t at = text.find(place); at != std::string::npos; at = text.find(place, at + value.size()))
      text.replace(at, place.size(), value);
  }
  return text;
}

std::string ocp_parts(const std::vector<std::pair<std::string, std::string>>& shots, const std::string& question,
                      const std::string& option) {
  std::string out;
  for (const auto& [human, bot] : shots) out += human + "\n" + bot + "\n\n\n";
  if (!shots.empty()) out += "\n\n";
  return out + question + "\n" + option;
}

std::vector<TaskEntry> opencompass_tasks() {
  std::vector<TaskEntry> out;
  std::map<std::string, std::vector<std::string>> members;
  for (const OcpForm& form : opencompass_forms()) {
    members[form.row].push_back(form.base.name);
    members[""].push_back(form.base.name);
    out.push_back({form.base.name, "ocp", "choice", "as OpenCompass scores it", {}, {}, make_ocp});
  }
  const auto group = [&](const char* name, const char* summary, const std::string& row, GroupFold fold) {
    TaskEntry entry{name, "ocp", "group", summary, members[row]};
    entry.fold_group = fold;
    entry.version = "1";
    entry.protocol = std::string("opencompass/") + name + "/1";
    entry.primary_metric = "acc";
    entry.metrics = {{"acc"}};
    out.push_back(std::move(entry));
  };
  group("ocp_mmlu", "MMLU as OpenCompass scores it: plain mean of 57 subjects", "MMLU", fold_mmlu);
  group("ocp_ceval", "C-Eval as OpenCompass scores it: plain mean of 52 subjects", "C-Eval", fold_ceval);
  group("ocp_cmmlu", "CMMLU as OpenCompass scores it: plain mean of 67 subjects", "CMMLU", fold_cmmlu);
  group("hybrid_short", "the nineteen rows of the hybrid paper's table 13 and their mean", "", fold_all);
  return out;
}

}  // namespace hayfork::tasks
