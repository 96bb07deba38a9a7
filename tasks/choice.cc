#include "tasks/choice.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "tasks/choice_score.h"
#include "tasks/extras.h"
#include "tasks/fewshot_task.h"
#include "tasks/pair_ids.h"
#include "tasks/turns.h"

namespace hayfork::tasks {
namespace {

using engine::ScoreRequest;
using nlohmann::json;
using nlohmann::ordered_json;

struct Asked {
  std::vector<std::string> contexts;       // one, or one an option
  std::vector<std::string> continuations;  // one an option
  std::vector<std::string> bare;           // options without their context, for acc_mutual_info
};

class ChoiceTask : public FewshotTask {
 public:
  ChoiceTask(const DocumentForm& form, const TaskOptions& options, const TextContext& text)
      : FewshotTask(form, options, text) {
    static const std::vector<std::string> kSwitch = {"off", "on"}, kTruncate = {"never", "left"};
    check_extras(options, choice_options(), form.name);
    pmi_ = extra_choice(options, "pmi", kSwitch, "off") == "on";
    cut_left_ = extra_choice(options, "truncate", kTruncate, "never") == "left";
    warn_of_equal_options();
    describe();
  }

  Sample sample(int64_t index) const override {
    const Document document = document_of(split_, index);
    const Asked asked = ask(document, index);
    Sample out = described_sample(key(index), asked.contexts.front());
    out.targets = {document.target};
    out.recipe_json = recipe(index);
    if (form_.output == Output::choices)
      for (size_t j = 0; j < document.choices.size(); ++j)
        if (document.choices[j].empty() && !document.multiple_inputs)
          Fields(split_.value(index), split_.where(index)).fail(fmt::format("option {} is empty", j + 1));
    add_requests(asked, out);
    const auto& first = std::get<ScoreRequest>(out.requests.front());
    out.ids_sha256 = ids_sha256(first.context);
    out.prompt_tokens = static_cast<int64_t>(first.context.size());
    return out;
  }

  std::string upstream_row(int64_t index) const override {
    const Document document = document_of(split_, index);
    const Asked asked = ask(document, index);
    ordered_json row = {{"task", form_.name}, {"doc_id", index}};
    for (const char* key : {"id", "ind", "idx"})
      if (!row.contains("native_id") && split_.value(index).contains(key)) row["native_id"] = split_.value(index)[key];
    row["choices"] = document.choices;
    row["gold"] = document.gold;
    row["doc_hash"] = key(index).doc_sha256;
    row["prompt_hash"] = sha256_hex(asked.contexts.front());
    row["target_hash"] = sha256_hex(document.target);
    const bool shared = asked.contexts.size() == 1;
    if (shared) {
      const PairIds pairs = encode_pairs(text_, asked.contexts[0], asked.continuations);
      row["context"] = asked.contexts[0];
      row["context_ids"] = pairs.context;
      row["requests"] = ordered_json::array();
      for (size_t j = 0; j < asked.continuations.size(); ++j)
        row["requests"].push_back(
            {{"continuation", asked.continuations[j]}, {"continuation_ids", pairs.continuations[j]}});
    } else {
      row["requests"] = ordered_json::array();
      for (size_t j = 0; j < asked.contexts.size(); ++j) {
        const PairIds pairs = encode_pairs(text_, asked.contexts[j], {asked.continuations[j]});
        row["requests"].push_back({{"context", asked.contexts[j]},
                                   {"continuation", asked.continuations[j]},
                                   {"context_ids", pairs.context},
                                   {"continuation_ids", pairs.continuations[0]}});
      }
    }
    if (pmi_) {
      const PairIds pairs = encode_pairs(text_, "", asked.bare);
      for (size_t j = 0; j < asked.bare.size(); ++j)
        row["requests"].push_back({{"context", ""},
                                   {"continuation", asked.bare[j]},
                                   {"context_ids", pairs.context},
                                   {"continuation_ids", pairs.continuations[j]}});
    }
    return row.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
  }

  SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const override {
    const Document document = document_of(split_, index_of(sample));
    std::vector<engine::ContinuationScore> scores;
    for (const engine::Answer& answer : answers) {
      if (const auto* failure = std::get_if<engine::Failure>(&answer.result)) {
        SampleScore out;
        out.status = Status::failed;
        out.error = failure->message;
        return out;
      }
      const auto& list = std::get<engine::ScoreAnswer>(answer.result).continuations;
      scores.insert(scores.end(), list.begin(), list.end());
    }
    const size_t n = n_options(document);
    HAY_CHECK(scores.size() == n * (pmi_ ? 2 : 1));
    std::vector<ChoiceValue> choices(n);
    for (size_t j = 0; j < n; ++j) {
      const std::string& option = document.choices[j];
      choices[j].logprob = scores[j].logprob;
      choices[j].greedy = scores[j].is_greedy;
      choices[j].n_tokens = static_cast<int64_t>(scores[j].token_logprobs.size());
      choices[j].n_chars = static_cast<int64_t>(count_code_points(option));
      choices[j].n_bytes = static_cast<int64_t>(option.size());
      choices[j].gold = static_cast<int64_t>(j) == document.gold;
      if (pmi_) choices[j].uncond_logprob = scores[n + j].logprob;
    }
    return scored(document, choices);
  }

  std::optional<SampleScore> rescore(const SampleKey& key, std::span<const ChoiceValue> choices,
                                     const std::string& /*response*/) const override {
    return scored(document_of(split_, index_of(key)), choices);
  }

  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    return fold_choices(rows, has_metric("f1") && !has_metric("em"));
  }

 private:
  SampleScore scored(const Document& document, std::span<const ChoiceValue> choices) const {
    return form_.output == Output::continuation ? score_continuation(document, choices)
                                                : score_choices(document, choices, form_.primary);
  }

  size_t n_options(const Document& document) const {
    return form_.output == Output::continuation ? 1 : document.choices.size();
  }

  void warn_of_equal_options() const {
    if (!options_.events || form_.output != Output::choices) return;
    int64_t n = 0, first = -1;
    for (int64_t i = 0; i < n_samples(); ++i) {
      try {
        std::vector<std::string> options = document_of(split_, i).choices;
        std::sort(options.begin(), options.end());
        if (std::adjacent_find(options.begin(), options.end()) != options.end() && n++ == 0) first = i;
      } catch (const Error&) {
        continue;  // the sample says what is wrong with it
      }
    }
    if (n > 0)
      options_.events({Event::Level::warn, "HAY-W041",
                       fmt::format("{} questions have two equal options, the first at {}; as upstream, the first of "
                                   "equals is chosen",
                                   n, split_.where(first)),
                       form_.name});
  }

  Asked ask(const Document& document, int64_t index) const {
    Conversation talk = conversation(index);
    // Of loglikelihood tasks upstream scores the target as it is.
    const std::string delimiter = form_.output == Output::continuation ? "" : option_delimiter(text_, form_.delimiter);
    Asked out;
    if (form_.output == Output::continuation) {
      talk.question = document.text;
      out.contexts = {conversation_text(text_, talk)};
      out.continuations = {document.choices.at(0)};
    } else if (document.multiple_inputs) {
      for (const std::string& option : document.choices) {
        talk.question = option;
        out.contexts.push_back(conversation_text(text_, talk));
        out.continuations.push_back(delimiter + document.continuation);
      }
    } else {
      talk.question = document.text;
      out.contexts = {conversation_text(text_, talk)};
      for (const std::string& option : document.choices) out.continuations.push_back(delimiter + option);
    }
    for (const std::string& option : document.choices) out.bare.push_back(delimiter + option);
    return out;
  }

  void add_requests(const Asked& asked, Sample& out) const {
    if (asked.contexts.size() == 1) {
      add_shared(encode_pairs(text_, asked.contexts[0], asked.continuations), out);
    } else {
      for (size_t j = 0; j < asked.contexts.size(); ++j)
        add_shared(encode_pairs(text_, asked.contexts[j], {asked.continuations[j]}), out);
    }
    if (!pmi_) return;
    PairIds bare = encode_pairs(text_, "", asked.bare);
    out.requests.emplace_back(ScoreRequest{std::move(bare.context), std::move(bare.continuations), false});
  }

  // One request; where it is longer than the window and may be cut, one an option: each is cut by its own length.
  void add_shared(PairIds pairs, Sample& out) const {
    size_t longest = 0;
    for (const Ids& ids : pairs.continuations) longest = std::max(longest, ids.size());
    const auto needed = static_cast<int64_t>(pairs.context.size() + longest) - 1;
    if (text_.window <= 0 || needed <= text_.window) {
      out.requests.emplace_back(ScoreRequest{std::move(pairs.context), std::move(pairs.continuations), false});
      return;
    }
    if (!cut_left_)
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "the question is longer than the model's window",
                  {.why = fmt::format("{} tokens, the window is {}", needed, text_.window),
                   .next = "--truncate left drops its beginning, as lm-evaluation-harness does"});
    out.truncated = true;
    for (Ids& ids : pairs.continuations) {
      const auto n = static_cast<int64_t>(ids.size());
      if (n > text_.window)
        throw Error(ErrorCode::corrupt, ErrorSubject::data, "an option alone is longer than the model's window");
      // Of context and continuation the last window + 1 ids stay, the last of which is never fed.
      const int64_t keep = std::min<int64_t>(text_.window + 1 - n, static_cast<int64_t>(pairs.context.size()));
      ScoreRequest request;
      request.context.assign(pairs.context.end() - keep, pairs.context.end());
      request.continuations.push_back(std::move(ids));
      out.kept_tokens = std::max(out.kept_tokens.value_or(0), keep);
      out.requests.emplace_back(std::move(request));
    }
  }

  void describe() {
    info_.kind = "choice";
    for (const std::string& metric : form_.metrics)
      info_.metrics.push_back(
          {metric, metric != "perplexity", metric == "f1" && !has_metric("em") ? "macro f1" : "mean"});
    for (const char* extra : {"acc_norm", "acc_bytes", "acc_tokens"})
      if (!has_metric(extra) && form_.output == Output::choices) info_.metrics.push_back({extra});
    if (pmi_) info_.metrics.push_back({"acc_mutual_info"});
    if (form_.output == Output::choices) info_.metrics.push_back({"bits_per_byte", false, "mean", "bits"});
    finish_info(json{{"pmi", pmi_}, {"truncate", cut_left_ ? "left" : "never"}}.dump());
  }

  bool pmi_ = false, cut_left_ = false;
};

}  // namespace

std::vector<OptionDef> choice_options() {
  return {
      {"pmi", "on|off", "also the options without their question, for acc_mutual_info", "off", "pmi"},
      {"truncate", "never|left",
       "what happens to a question longer than the window: never: it fails; left: its beginning is dropped, and the "
       "sample is marked",
       "never", "truncate"}};
}

std::unique_ptr<Task> make_choice_task(const DocumentForm& form, const TaskOptions& options, const TextContext& text) {
  return std::make_unique<ChoiceTask>(form, options, text);
}

}  // namespace hayfork::tasks
