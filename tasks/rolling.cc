#include "tasks/rolling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "engine/text/tokenizer.h"
#include "metrics/bootstrap.h"
#include "metrics/wikitext.h"
#include "tasks/doc_fields.h"
#include "tasks/document_task.h"
#include "tasks/extras.h"
#include "tasks/fold.h"
#include "tasks/pair_ids.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct RollingForm {
  const char* name;
  const char* version;
  const char* protocol;
  const char* field;  // that holds the document
  const char* split;
  bool detokenize;  // WikiText's spacing is undone before scoring; words and bytes count the original
  bool strict;      // no BOS of the tokenizer's own behind the prefix
  const char* primary;
};

constexpr RollingForm kForms[] = {
    {"wikitext", "2.0", "lm-eval/wikitext/2.0", "page", "test", true, false, "word_perplexity"},
    {"c4", "0.0", "lm-eval/c4/0.0", "text", "validation", true, false, "word_perplexity"},
    {"corpus_loss", "1", "hayfork/corpus_loss/1", "text", "validation", false, true, "loss_token"},
};

const RollingForm& form_of(const std::string& name) {
  for (const RollingForm& form : kForms)
    if (form.name == name) return form;
  HAY_CHECK(false, name);
}

std::vector<OptionDef> rolling_options() {
  return {{"window", "N", "tokens fed at once; 0: the model's own", "0", "rolling-window"},
          {"set", "NAME", "corpus_loss: the data set whose field \"text\" is scored", "c4", "corpus"},
          {"split", "NAME", "corpus_loss: its split", "validation", "corpus-split"}};
}

std::optional<double> value_of(const FoldRow& row, const char* name) {
  for (const MetricValue& m : row.metrics)
    if (m.metric == name) return m.value;
  return std::nullopt;
}

// Σ −L ÷ Σ count with its interval over documents, put through `f` (rising).
template <typename F>
Aggregate ratio(std::span<const FoldRow> rows, const char* name, const char* count, F f) {
  std::vector<double> sums, counts;
  double sum = 0, n = 0;
  for (const FoldRow& row : rows) {
    const auto loss = value_of(row, "loglikelihood"), by = value_of(row, count);
    if (row.status != Status::ok || !loss || !by) continue;
    sums.push_back(-*loss);
    counts.push_back(*by);
    sum -= *loss;
    n += *by;
  }
  Aggregate out;
  out.metric = name;
  out.n = static_cast<int64_t>(sums.size());
  if (sums.empty() || n <= 0) return out;
  out.value = f(sum / n);
  if (const auto interval = metrics::bca_bootstrap(sums, counts)) {
    out.ci_low = f(interval->low);
    out.ci_high = f(interval->high);
    out.ci_method = metrics::bootstrap_name("bca", {});
  }
  return out;
}

// The mean over documents of a document's loss a token.
Aggregate mean_loss(std::span<const FoldRow> rows) {
  std::vector<FoldRow> losses;
  for (const FoldRow& row : rows) {
    const auto loss = value_of(row, "loglikelihood"), tokens = value_of(row, "tokens");
    const bool counts = loss && tokens && *tokens > 0;
    losses.push_back(
        {.key = row.key,
         .status = row.status,
         .metrics = {{.metric = "loss_doc", .value = counts ? std::optional(-*loss / *tokens) : std::nullopt}}});
  }
  constexpr Slicing kAll[] = {Slicing::all};
  return losses.empty() ? Aggregate{.metric = "loss_doc"} : fold_means(losses, kAll).front();
}

class RollingTask : public DocumentTask {
 public:
  RollingTask(const RollingForm& form, const TaskOptions& options, const TextContext& text)
      : DocumentTask(options, text), form_(form) {
    check_extras(options, rolling_options(), form.name);
    info_.name = form.name;
    window_ = extra_count(options, "window", 0, 0, int64_t{1} << 24);
    if (window_ == 0) window_ = text.window;
    const bool own = form.strict;
    const std::string set = own ? extra_text(options, "set").value_or("c4") : form.name;
    split_ = open_split(options, {{set}, {}}, own ? extra_text(options, "split").value_or(form.split) : form.split,
                        form.name);
    prefix_ = form.strict ? bos() : prefix_token(*text.tokenizer);
    adopt_rows([this](int64_t row) { return Identity{doc_hash(split_.value(row)), ""}; });
    describe();
  }

  Sample sample(int64_t index) const override {
    const std::string scored = scored_text(index);
    Sample out = described_sample(key(index), scored);
    const Ids ids = ids_of(scored);
    std::vector<RollingWindow> windows = windows_of(ids);
    if (windows.empty())
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "the document has no tokens to score",
                  {.where = split_.where(index)});
    out.recipe_json = canonical_json(json{{"task", form_.name},
                                          {"protocol", form_.protocol},
                                          {"dataset", split_.records->sha256},
                                          {"document", index},
                                          {"window", window_},
                                          {"windows", windows.size()}});
    out.ids_sha256 = ids_sha256(ids);
    out.prompt_tokens = static_cast<int64_t>(ids.size());
    for (RollingWindow& w : windows)
      out.requests.emplace_back(engine::ScoreRequest{std::move(w.context), {std::move(w.continuation)}, false});
    return out;
  }

  std::string upstream_row(int64_t index) const override {
    const std::string scored = scored_text(index);
    ordered_json row = {{"task", form_.name},
                        {"doc_id", index},
                        {"doc_hash", key(index).doc_sha256},
                        {"prompt_hash", sha256_hex(scored)},
                        {"target_hash", sha256_hex(scored)},
                        {"text", scored},
                        {"windows", ordered_json::array()}};
    for (const RollingWindow& w : windows_of(ids_of(scored)))
      row["windows"].push_back({{"context_ids", w.context}, {"continuation_ids", w.continuation}});
    return row.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
  }

  SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const override {
    const std::string original = document(index_of(sample));
    SampleScore out;
    double sum = 0;
    int64_t tokens = 0;
    for (const engine::Answer& answer : answers) {
      if (const auto* failure = std::get_if<engine::Failure>(&answer.result)) {
        out.status = Status::failed;
        out.error = failure->message;
        return out;
      }
      const engine::ContinuationScore& c = std::get<engine::ScoreAnswer>(answer.result).continuations.at(0);
      sum += c.logprob;
      tokens += static_cast<int64_t>(c.token_logprobs.size());
    }
    if (!std::isfinite(sum)) {
      out.status = Status::failed;
      out.error = "the document's log-probability is not finite";
      return out;
    }
    const auto n_bytes = static_cast<double>(original.size());
    const auto n_words = static_cast<double>(metrics::count_words(original));
    out.metrics = {
        {"loglikelihood", sum}, {"tokens", static_cast<double>(tokens)}, {"words", n_words}, {"bytes", n_bytes}};
    const std::string primary = form_.primary;
    out.score = primary == "loss_token" ? -sum / static_cast<double>(tokens) : std::exp(-sum / n_words);
    return out;
  }

  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    const auto same = [](double x) { return x; };
    const auto power = [](double x) { return std::exp(x); };
    const auto bits = [](double x) { return x / std::numbers::ln2; };
    return {ratio(rows, "bits_per_byte", "bytes", bits),
            ratio(rows, "byte_perplexity", "bytes", power),
            mean_loss(rows),
            ratio(rows, "loss_token", "tokens", same),
            ratio(rows, "perplexity", "tokens", power),
            ratio(rows, "word_perplexity", "words", power)};
  }

 private:
  Ids ids_of(const std::string& scored) const {
    return form_.strict ? text_.tokenizer->encode(scored, {.add_special = false, .parse_special = true})
                        : encode_whole(text_, scored);
  }
  std::vector<RollingWindow> windows_of(const Ids& ids) const {
    if (window_ <= 0)
      throw Error(ErrorCode::usage, ErrorSubject::general, "the model's window is not known",
                  {.where = form_.name, .next = "give --rolling-window N"});
    return rolling_windows(ids, prefix_, window_);
  }

  // The first token is scored only where something can stand before it.
  Ids bos() const {
    const auto id = text_.tokenizer->bos_id();
    return id ? Ids{*id} : Ids{};
  }

  std::string document(int64_t index) const {
    const std::string where = split_.where(index);
    return Fields(split_.value(index), where).text(form_.field);
  }
  std::string scored_text(int64_t index) const {
    return form_.detokenize ? metrics::wikitext_detokenized(document(index)) : document(index);
  }

  void describe() {
    info_.family = "rolling";
    info_.version = form_.version;
    info_.kind = "rolling";
    info_.protocol = form_.protocol;
    info_.primary_metric = form_.primary;
    info_.higher_is_better = false;
    for (const char* name :
         {"bits_per_byte", "byte_perplexity", "loss_doc", "loss_token", "perplexity", "word_perplexity"})
      info_.metrics.push_back({name, false, "ratio of sums", ""});
    info_.config_json = canonical_json(json{{"protocol", form_.protocol},
                                            {"version", form_.version},
                                            {"set", split_.set},
                                            {"split", split_.split},
                                            {"window", window_},
                                            {"windows", "disjoint, the last one full"},
                                            {"prefix", prefix_},
                                            {"add_bos", !form_.strict && text_.add_bos},
                                            {"detokenized", form_.detokenize}});
  }

  const RollingForm& form_;
  int64_t window_ = 0;
  Ids prefix_;
};

std::unique_ptr<Task> make_rolling(const std::string& name, const TaskOptions& options, const TextContext& text) {
  return std::make_unique<RollingTask>(form_of(name), options, text);
}

}  // namespace

std::vector<RollingWindow> rolling_windows(const Ids& tokens, const Ids& prefix, int64_t max_length,
                                           int64_t context_length) {
  HAY_CHECK(context_length >= 1 && context_length <= max_length);
  Ids all = prefix;  // without a prefix the first token has no prediction
  all.insert(all.end(), tokens.begin(), tokens.end());
  const auto n = static_cast<int64_t>(all.size());
  std::vector<RollingWindow> out;
  const int64_t step = max_length - context_length + 1;
  for (int64_t done = 1; done < n;) {  // all[0, done) are predicted or cannot be
    const int64_t width = std::min(n - done, done == 1 ? max_length : step);
    const int64_t end = done + width;
    const int64_t begin = std::max<int64_t>(0, end - 1 - max_length);
    out.push_back({Ids(all.begin() + begin, all.begin() + done), Ids(all.begin() + done, all.begin() + end)});
    done = end;
  }
  return out;
}

std::vector<TaskEntry> rolling_tasks() {
  std::vector<TaskEntry> out;
  const auto add = [&out](const char* name, const char* summary) {
    out.push_back({name, "rolling", "rolling", summary, {}, rolling_options(), make_rolling});
  };
  add("wikitext", "word and byte perplexity, bits per byte of WikiText pages, as lm-evaluation-harness");
  add("c4", "the same of C4 documents, as lm-evaluation-harness");
  add("corpus_loss", "mean loss a token over any set of texts");
  return out;
}

}  // namespace hayfork::tasks
