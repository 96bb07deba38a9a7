#include "tasks/generate.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "engine/text/tokenizer.h"
#include "metrics/squad.h"
#include "metrics/text.h"
#include "tasks/choice.h"
#include "tasks/choice_score.h"
#include "tasks/extras.h"
#include "tasks/fewshot_task.h"
#include "tasks/fold.h"
#include "tasks/pair_ids.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string without_punctuation(const std::string& text) {  // Python's string.punctuation
  std::string out;
  for (const char c : text)
    if (!((c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~')))
      out += c;
  return out;
}

// exact_match of lm_eval/api/metrics.py: the best over all targets.
double exact_match(const DocumentForm& form, const std::string& answer, const std::vector<std::string>& targets) {
  const auto normal = [&form](std::string text) {
    if (form.ignore_case) text = metrics::lower(text);
    return form.ignore_punctuation ? without_punctuation(text) : text;
  };
  const std::string got = normal(answer);
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& want) { return normal(want) == got; }) ? 1
                                                                                                                   : 0;
}

class GenerateTask : public FewshotTask {
 public:
  GenerateTask(const DocumentForm& form, const TaskOptions& options, const TextContext& text)
      : FewshotTask(form, options, text) {
    static const std::vector<std::string> kTruncate = {"never", "left"};
    cut_left_ = extra_choice(options, "truncate", kTruncate, "never") == "left";
    new_tokens_ = form.max_new_tokens;
    info_.kind = "generate";
    for (const std::string& metric : form.metrics) info_.metrics.push_back({metric});
    finish_info(json{{"stops", form.stops},
                     {"max_new_tokens", form.max_new_tokens},
                     {"ignore_case", form.ignore_case},
                     {"ignore_punctuation", form.ignore_punctuation},
                     {"truncate", cut_left_ ? "left" : "never"}}
                    .dump());
  }

  Sample sample(int64_t index) const override {
    const Document asked = document(index);
    Sample out = described_sample(key(index), context(asked, index));
    out.targets = asked.targets;
    out.recipe_json = recipe(index);
    out.max_new_tokens = form_.max_new_tokens;
    out.kept_tokens = asked.kept_tokens;
    engine::GenerateRequest request;
    request.prompt = encode_whole(text_, context(asked, index));
    if (request.prompt.empty()) request.prompt = prefix_token(*text_.tokenizer);
    fit(request.prompt, out);
    request.max_new_tokens = static_cast<int32_t>(form_.max_new_tokens);
    request.stops = form_.stops;
    out.ids_sha256 = ids_sha256(request.prompt);
    out.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    out.requests.emplace_back(std::move(request));
    return out;
  }

  std::string upstream_row(int64_t index) const override {
    const Document asked = document(index);
    const std::string text = context(asked, index);
    const ordered_json row = {{"task", form_.name},
                              {"doc_id", index},
                              {"doc_hash", key(index).doc_sha256},
                              {"prompt_hash", sha256_hex(text)},
                              {"target_hash", sha256_hex(asked.target)},
                              {"targets", asked.targets},
                              {"context", text},
                              {"context_ids", encode_whole(text_, text)},
                              {"until", form_.stops},
                              {"max_gen_toks", form_.max_new_tokens}};
    return row.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
  }

  SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const override {
    HAY_CHECK(answers.size() == 1);
    if (const auto* failure = std::get_if<engine::Failure>(&answers[0].result)) {
      SampleScore out;
      out.status = Status::failed;
      out.error = failure->message;
      return out;
    }
    return scored(document(index_of(sample)), std::get<engine::GenerateAnswer>(answers[0].result).text);
  }

  std::optional<SampleScore> rescore(const SampleKey& key, std::span<const ChoiceValue> /*choices*/,
                                     const std::string& response) const override {
    return scored(document(index_of(key)), response);
  }

  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    static constexpr Slicing kAll[] = {Slicing::all};
    return fold_means(rows, kAll);
  }

 private:
  std::string context(const Document& asked, int64_t index) const {
    Conversation talk = conversation(index);
    talk.question = asked.text;
    return conversation_text(text_, talk);
  }

  // lm-evaluation-harness keeps the last window − max_gen_toks ids.
  void fit(Ids& prompt, Sample& out) const {
    const int64_t room = text_.window - form_.max_new_tokens;
    const auto n = static_cast<int64_t>(prompt.size());
    if (text_.window <= 0 || n <= room) return;
    if (!cut_left_ || room < 1)
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "the question is longer than the model's window",
                  {.why = fmt::format("{} tokens and {} for the answer, the window is {}", n, form_.max_new_tokens,
                                      text_.window),
                   .next = "--truncate left drops its beginning, as lm-evaluation-harness does"});
    prompt.erase(prompt.begin(), prompt.end() - room);
    out.truncated = true;
    out.kept_tokens = room;
  }

  // A stop string may stand in the text when it was stored by another engine: what follows it does not count.
  SampleScore scored(const Document& asked, std::string answer) const {
    for (const std::string& stop : form_.stops)
      if (!stop.empty()) answer = answer.substr(0, answer.find(stop));
    SampleScore out;
    for (const std::string& metric : form_.metrics) {
      const double value = score_text(form_, metric, answer, asked.targets);
      out.metrics.push_back({metric, value});
      if (metric == form_.primary) out.score = value;
    }
    out.answer = shortened(answer);
    return out;
  }

  bool cut_left_ = false;
};

}  // namespace

double score_text(const DocumentForm& form, const std::string& metric, const std::string& answer,
                  const std::vector<std::string>& targets) {
  if (targets.empty()) throw Error(ErrorCode::corrupt, ErrorSubject::data, "the document has no right answer");
  if (metric == "contains")
    return std::any_of(targets.begin(), targets.end(),
                       [&](const std::string& t) { return metrics::find_ignoring_case(answer, t).has_value(); })
               ? 1
               : 0;
  if (metric == "exact_match") return exact_match(form, answer, targets);
  if (metric == "f1") return metrics::squad_f1(answer, targets);
  throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("no metric \"{}\" for generated text", metric),
              {.next = "it is one of contains, exact_match, f1"});
}

std::unique_ptr<Task> make_generate_task(const DocumentForm& form, const TaskOptions& options,
                                         const TextContext& text) {
  return std::make_unique<GenerateTask>(form, options, text);
}

}  // namespace hayfork::tasks
