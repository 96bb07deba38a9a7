#include "tasks/ruler.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/digest.h"
#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "metrics/text.h"
#include "tasks/extras.h"
#include "tasks/fold.h"
#include "tasks/ruler_data.h"
#include "tasks/ruler_protocol.h"
#include "tasks/ruler_series.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

const datasets::RulerTask& find_ruler_task(const std::string& name) {
  for (const datasets::RulerTask& task : datasets::ruler_tasks())
    if ("ruler_" + task.name == name) return task;
  HAY_CHECK(false, name);
}

constexpr int64_t kFourThousand = 4096;  // below it RULER's steps are smaller

std::vector<int64_t> default_lengths(int64_t window) {
  std::vector<int64_t> out;
  for (int64_t n = kFourThousand; n <= 131072 && (window == 0 || n <= window); n *= 2) out.push_back(n);
  return out;
}

class Ruler : public Task {
 public:
  Ruler(const std::string& name, const TaskOptions& options, const TextContext& text)
      : text_(text), events_(options.events), task_(find_ruler_task(name)) {
    check_extras(options, ruler_options(), name);
    form_ = read_ruler_form(task_, options, text);
    read_options(options);
    data_ = load_ruler_data(task_, options);
    cap_samples(options, name);
    describe(name);
    // The smallest samples are larger from 4096 on.
    check_length(lengths_.front());
    const auto large = std::lower_bound(lengths_.begin(), lengths_.end(), kFourThousand);
    if (large != lengths_.end() && large != lengths_.begin()) check_length(*large);
  }

  const TaskInfo& info() const override { return info_; }
  int64_t n_samples() const override { return static_cast<int64_t>(lengths_.size()) * samples_; }

  SampleKey key(int64_t index) const override {
    HAY_CHECK(index >= 0 && index < n_samples());
    const int64_t length = lengths_[static_cast<size_t>(index / samples_)], number = index % samples_;
    SampleKey key;
    key.doc_id = std::to_string(length) + "/" + std::to_string(number);
    key.doc_sha256 = sha256_hex(canonical_json(json{{"protocol", info_.protocol},
                                                    {"length", length},
                                                    {"repeat", number},
                                                    {"seed", form_.first_seed()},
                                                    {"permutation", form_.permutation}}));
    key.ctx_len = length;
    key.seed = static_cast<int64_t>(form_.first_seed());
    if (data_.qa && !data_.qa->questions[static_cast<size_t>(number)].article.empty())
      key.cluster = data_.qa->questions[static_cast<size_t>(number)].article;
    return key;
  }

  std::vector<PlanRow> plan() const override {
    std::vector<PlanRow> rows;
    for (const int64_t length : lengths_)
      rows.push_back(
          {{}, length, samples_, samples_ * (length - task_.tokens_to_generate), samples_ * form_.max_new_tokens});
    return rows;
  }

  Sample sample(int64_t index) const override {
    const int64_t length = lengths_[static_cast<size_t>(index / samples_)];
    RulerSeries::Drawn drawn = series(length).get(index % samples_);
    note_clamped(length, drawn.sample);
    note_essays(length, drawn.sample);
    if (!form_.counts_prompt())
      drawn.ids = text_.tokenizer->encode(form_.prompt(drawn.sample), {.add_special = false, .parse_special = true});
    Sample out;
    static_cast<SampleKey&>(out) = key(index);
    out.targets = drawn.sample.outputs;
    out.recipe_json = canonical_json(json{{"task", "ruler_" + task_.name},
                                          {"protocol", info_.protocol},
                                          {"variant", form_.is_lm_eval() ? "lm-eval" : "official"},
                                          {"length", length},
                                          {"number", index % samples_},
                                          {"seed", form_.first_seed()},
                                          {"size", drawn.sample.size},
                                          {"clamped", drawn.sample.clamped},
                                          {"permutation", form_.permutation},
                                          {"template", form_.template_key},
                                          {"prefix_used", form_.prefix_used},
                                          {"sources", data_.sha256}});
    engine::GenerateRequest request;
    // A template may spell its own BOS: there is never a second one.
    const bool bos = text_.add_bos && !form_.is_chat() && text_.tokenizer->bos_id() &&
                     (drawn.ids.empty() || drawn.ids.front() != *text_.tokenizer->bos_id());
    if (bos) request.prompt.push_back(*text_.tokenizer->bos_id());
    request.prompt.insert(request.prompt.end(), drawn.ids.begin(), drawn.ids.end());
    out.max_new_tokens = new_tokens(static_cast<int64_t>(request.prompt.size()));
    request.max_new_tokens = static_cast<int32_t>(out.max_new_tokens);
    out.requests.emplace_back(std::move(request));
    describe_prompt(out, *text_.tokenizer);
    return out;
  }

  std::string upstream_row(int64_t index) const override {
    const int64_t length = lengths_[static_cast<size_t>(index / samples_)];
    return form_.row(task_, series(length).get(index % samples_).sample, length, *text_.tokenizer);
  }

  SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const override {
    HAY_CHECK(answers.size() == 1);
    SampleScore out;
    if (const auto* failure = std::get_if<engine::Failure>(&answers[0].result)) {
      out.status = Status::failed;
      out.error = failure->message;
      return out;
    }
    const std::string prediction = ruler_postprocess(std::get<engine::GenerateAnswer>(answers[0].result).text);
    out.score = form_.match_part ? metrics::string_match_part(prediction, sample.targets)
                                 : metrics::string_match_all(prediction, sample.targets);
    out.metrics = {{"score", out.score}, {"null", prediction.empty() ? 1.0 : 0.0}};
    out.answer = prediction.substr(0, 200);
    return out;
  }

  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    static constexpr Slicing kSlicings[] = {Slicing::all, Slicing::by_length};
    std::vector<Aggregate> out = fold_means(rows, kSlicings);
    if (form_.threshold != kRulerThreshold && !out.empty()) {  // for the group; see fold_ruler_group
      Aggregate line;
      line.metric = "threshold";
      line.value = form_.threshold;
      out.push_back(std::move(line));
      std::sort(out.begin(), out.end(), [](const Aggregate& a, const Aggregate& b) {
        return std::tie(a.slice, a.metric, a.filter) < std::tie(b.slice, b.metric, b.filter);
      });
    }
    return out;
  }

 private:
  void read_options(const TaskOptions& options) {
    lengths_ = options.lengths.empty() ? default_lengths(text_.max_length) : options.lengths;
    std::sort(lengths_.begin(), lengths_.end());
    lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
    const auto refuse = [&](const std::string& what, const std::string& why, const std::string& next) {
      throw Error(ErrorCode::usage, ErrorSubject::general, what, {"ruler_" + task_.name, why, next});
    };
    if (lengths_.empty())
      refuse("the model's window is " + std::to_string(text_.max_length) + " tokens", "RULER begins at 4096",
             "give shorter --lengths");
    if (text_.max_length > 0 && lengths_.back() > text_.max_length)
      refuse("the model's window is " + std::to_string(text_.max_length) + " tokens but ruler needs " +
                 std::to_string(lengths_.back()),
             "prompt and answer together must fit the window",
             "drop the longer lengths, or pass --allow-beyond-window");
    if (lengths_.front() < 1) refuse("a length must be positive", "", "");
    samples_ = options.samples.value_or(500);
    if (options.limit) samples_ = std::min(samples_, *options.limit);
    if (samples_ < 1) refuse("no samples", "samples and limit must be at least 1", "");
  }

  // p2's long answers end where the window does.
  int64_t new_tokens(int64_t prompt_tokens) const {
    if (form_.prefix_used || text_.max_length == 0) return form_.max_new_tokens;
    return std::clamp<int64_t>(text_.max_length - prompt_tokens, 1, form_.max_new_tokens);
  }

  // A length that cannot work is refused before anything runs.
  void check_length(int64_t length) {
    try {
      // Where little fits, a later sample may be the one that does not.
      const int64_t n = length <= 2 * kFourThousand ? std::min<int64_t>(samples_, 50) : 1;
      for (int64_t i = 0; i < n; ++i) {
        const datasets::RulerSample sample = series(length).get(i).sample;
        note_clamped(length, sample);
        note_essays(length, sample);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage || error.subject() != ErrorSubject::general) throw;
      const auto options = [this](int64_t n) { return form_.generator_options(n, *text_.tokenizer); };
      const std::optional<int64_t> smallest =
          smallest_ruler_length(task_, data_, options, *text_.tokenizer, form_.is_lm_eval(), length, samples_);
      if (!smallest) throw;
      throw Error(ErrorCode::usage, ErrorSubject::general, error.summary(),
                  {"template " + form_.template_key, "prompt and answer of its smallest samples must fit",
                   "the smallest workable length " + std::string(length < kFourThousand ? "" : "from 4096 on ") +
                       "is " + std::to_string(*smallest)});
    }
  }

  // Said once a length; the rows are marked.
  void note_clamped(int64_t length, const datasets::RulerSample& sample) const {
    if (!sample.clamped || !events_) return;
    const std::lock_guard lock(*mutex_);
    if (!clamped_.insert(length).second) return;
    events_(
        {Event::Level::warn, "HAY-W022",
         "at length " + std::to_string(length) + " questions stand with their own documents alone, which may be longer",
         info_.name});
  }

  // Fewer words than a prompt takes go round, as upstream's; the paper's generator and its fork end with them. Said
  // once a length.
  void note_essays(int64_t length, const datasets::RulerSample& sample) const {
    if (task_.haystack != "essay" || !data_.essays || !events_) return;
    const auto n_words = static_cast<int64_t>(data_.essays->size());
    const bool ends = form_.name == "p0" || form_.is_lm_eval();
    if (sample.size < n_words + (ends ? 0 : 1)) return;
    const std::lock_guard lock(*mutex_);
    if (!short_essays_.insert(length).second) return;
    events_({Event::Level::warn, "HAY-W020",
             "the essays have " + std::to_string(n_words) + " words and " +
                 (ends ? "end before length " : "go round to fill ") + std::to_string(length),
             info_.name});
  }

  // A question file may hold fewer questions than samples were asked for.
  void cap_samples(const TaskOptions& options, const std::string& name) {
    if (!data_.qa) return;
    const auto n = static_cast<int64_t>(data_.qa->questions.size());
    if (samples_ <= n) return;
    if (options.events)
      options.events({Event::Level::warn, "HAY-W021",
                      "the question file has " + std::to_string(n) + " questions: not " + std::to_string(samples_) +
                          " but " + std::to_string(n) + " samples a length",
                      name});
    samples_ = n;
  }

  RulerSeries& series(int64_t length) const {
    const std::lock_guard lock(*mutex_);
    std::unique_ptr<RulerSeries>& slot = series_[length];
    if (!slot)
      slot = std::make_unique<RulerSeries>(task_, data_, form_.generator_options(length, *text_.tokenizer),
                                           *text_.tokenizer, form_.is_lm_eval());
    return *slot;
  }

  void describe(const std::string& name) {
    info_.name = name;
    info_.family = "ruler";
    info_.version = "1";
    info_.kind = "generate";
    info_.protocol = form_.protocol;
    info_.primary_metric = "score";
    info_.metrics = {{"score"}, {"null", false}};
    info_.cluster = task_.dataset == "squad" ? "article" : "";
    info_.dataset = DatasetInfo{"ruler/" + task_.name, "1", data_.sha256, {}, ""};
    info_.seeds_json = canonical_json(json{{"seed", form_.first_seed()}});
    info_.official = form_.official;
    info_.config_json = canonical_json(json{{"protocol", info_.protocol},
                                            {"group", form_.group},
                                            {"variant", form_.is_lm_eval() ? "lm-eval" : "official"},
                                            {"version", info_.version},
                                            {"lengths", lengths_},
                                            {"samples", samples_},
                                            {"seed", form_.first_seed()},
                                            {"permutation", form_.permutation},
                                            {"template", form_.template_key},
                                            {"template_text", form_.text},
                                            {"prefix_used", form_.prefix_used},
                                            {"tokens_to_generate", form_.max_new_tokens},
                                            {"threshold", form_.threshold},
                                            {"add_bos", text_.add_bos && !form_.is_chat()},
                                            {"system", text_.system},
                                            {"sources", json::parse(data_.digests_json)}});
  }

  TextContext text_;
  EventSink events_;
  const datasets::RulerTask& task_;
  std::vector<int64_t> lengths_;
  int64_t samples_ = 0;
  RulerForm form_;
  RulerData data_;
  TaskInfo info_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  mutable std::map<int64_t, std::unique_ptr<RulerSeries>> series_;
  mutable std::set<int64_t> clamped_, short_essays_;  // lengths that were told of
};

bool is_space(char32_t c) {  // Python's str.strip
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::u32string_view strip(std::u32string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string ruler_postprocess(std::string_view prediction) {
  const std::u32string all = to_code_points(prediction);
  std::u32string text(strip(all));
  for (char32_t& c : text)
    if (c < 0x20) c = '\n';
  return to_utf8(strip(text));
}

std::vector<std::string> ruler_members() {
  std::vector<std::string> names;
  for (const datasets::RulerTask& task : datasets::ruler_tasks()) names.push_back("ruler_" + task.name);
  return names;
}

std::unique_ptr<Task> make_ruler(const std::string& name, const TaskOptions& options, const TextContext& text) {
  HAY_CHECK(text.tokenizer != nullptr);
  return std::make_unique<Ruler>(name, options, text);
}

}  // namespace hayfork::tasks
