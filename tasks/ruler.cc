#include "tasks/ruler.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "metrics/text.h"
#include "tasks/extras.h"
#include "tasks/fold.h"
#include "tasks/ruler_data.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {
namespace {

using datasets::RulerSample;
using datasets::RulerState;
using nlohmann::json;

const datasets::RulerTask& find_ruler_task(const std::string& name) {
  for (const datasets::RulerTask& task : datasets::ruler_tasks())
    if ("ruler_" + task.name == name) return task;
  HAY_CHECK(false, name);
}

std::vector<int64_t> default_lengths(int64_t window) {
  std::vector<int64_t> out;
  for (int64_t n = 4096; n <= 131072 && (window == 0 || n <= window); n *= 2) out.push_back(n);
  return out;
}

// Samples of one length. Sample i is drawn from the state that sample i−1 left; states are kept, so that any sample can
// be made again, and what was drawn on the way to a later one waits for whoever asks for it.
class Series {
 public:
  struct Drawn {
    RulerSample sample;
    Ids ids;  // of input and prefix, without BOS
  };

  Series(const datasets::RulerTask& task, const RulerData& data, datasets::RulerOptions options,
         const engine::Tokenizer& tokenizer) {
    // The text that was counted last is the prompt that fitted: its ids need no second pass.
    options.count = [this, &tokenizer](std::string_view text) {
      last_ = tokenizer.encode(text, {.add_special = false, .parse_special = true});
      return static_cast<int64_t>(last_.size());
    };
    options.split = [&data](const std::string& text) { return data.split(text); };
    generator_ = datasets::make_ruler_generator(task, data.sources(), options);
    states_.push_back(generator_->start());
  }

  Drawn get(int64_t index) {
    const std::lock_guard lock(mutex_);
    const auto i = static_cast<size_t>(index);
    if (const auto it = waiting_.find(index); it != waiting_.end()) {
      Drawn drawn = std::move(it->second);
      waiting_.erase(it);
      return drawn;
    }
    if (i + 1 < states_.size()) {
      RulerState again = states_[i];
      return draw(again);
    }
    for (;;) {
      const auto number = static_cast<int64_t>(states_.size()) - 1;
      RulerState state = states_.back();
      Drawn drawn = draw(state);
      states_.push_back(std::move(state));
      if (number == index) return drawn;
      if (waiting_.size() < kMostWaiting) waiting_.emplace(number, std::move(drawn));
    }
  }

 private:
  static constexpr size_t kMostWaiting = 128;

  Drawn draw(RulerState& state) {
    Drawn drawn{generator_->draw(state), {}};
    drawn.ids = std::move(last_);
    return drawn;
  }

  std::mutex mutex_;
  Ids last_;
  std::unique_ptr<datasets::RulerGenerator> generator_;
  std::vector<RulerState> states_;  // states_[i]: with which sample i is drawn
  std::map<int64_t, Drawn> waiting_;
};

class Ruler : public Task {
 public:
  Ruler(const std::string& name, const TaskOptions& options, const TextContext& text)
      : text_(text), task_(find_ruler_task(name)) {
    check_extras(options, ruler_options(), name);
    read_options(options);
    data_ = load_ruler_data(task_, options);
    cap_samples(options, name);
    describe(name, options);
    // A length that cannot work is refused before anything runs.
    if (series(lengths_.front()).get(0).sample.clamped && options.events)
      options.events({Event::Level::warn, "HAY-W022",
                      "at length " + std::to_string(lengths_.front()) +
                          " questions stand with their own documents alone, which may be longer",
                      name});
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
                                                    {"seed", seed_},
                                                    {"permutation", permutation_}}));
    key.ctx_len = length;
    key.seed = static_cast<int64_t>(seed_);
    if (data_.qa && !data_.qa->questions[static_cast<size_t>(number)].article.empty())
      key.cluster = data_.qa->questions[static_cast<size_t>(number)].article;
    return key;
  }

  std::vector<PlanRow> plan() const override {
    std::vector<PlanRow> rows;
    for (const int64_t length : lengths_)
      rows.push_back(
          {{}, length, samples_, samples_ * (length - task_.tokens_to_generate), samples_ * task_.tokens_to_generate});
    return rows;
  }

  Sample sample(int64_t index) const override {
    const int64_t length = lengths_[static_cast<size_t>(index / samples_)];
    Series::Drawn drawn = series(length).get(index % samples_);
    Sample out;
    static_cast<SampleKey&>(out) = key(index);
    out.targets = drawn.sample.outputs;
    out.max_new_tokens = task_.tokens_to_generate;
    out.recipe_json = canonical_json(json{{"task", "ruler_" + task_.name},
                                          {"protocol", info_.protocol},
                                          {"length", length},
                                          {"number", index % samples_},
                                          {"seed", seed_},
                                          {"size", drawn.sample.size},
                                          {"clamped", drawn.sample.clamped},
                                          {"permutation", permutation_},
                                          {"template", template_key_},
                                          {"sources", data_.sha256}});
    engine::GenerateRequest request;
    // A template may spell its own BOS: there is never a second one.
    const bool bos = text_.add_bos && !text_.chat && text_.tokenizer->bos_id() &&
                     (drawn.ids.empty() || drawn.ids.front() != *text_.tokenizer->bos_id());
    if (bos) request.prompt.push_back(*text_.tokenizer->bos_id());
    request.prompt.insert(request.prompt.end(), drawn.ids.begin(), drawn.ids.end());
    request.max_new_tokens = static_cast<int32_t>(task_.tokens_to_generate);
    out.requests.emplace_back(std::move(request));
    describe_prompt(out, *text_.tokenizer);
    return out;
  }

  std::string upstream_row(int64_t index) const override {
    const int64_t length = lengths_[static_cast<size_t>(index / samples_)];
    const RulerSample s = series(length).get(index % samples_).sample;
    nlohmann::ordered_json row;
    row["index"] = s.index;
    row["input"] = s.input;
    row["outputs"] = s.outputs;
    row["length"] = s.length;
    row["answer_prefix"] = s.answer_prefix;
    if (task_.generator == "niah")
      row["token_position_answer"] = static_cast<int64_t>(
          text_.tokenizer
              ->encode(std::string_view(s.input).substr(0, (s.input + s.answer_prefix).find(s.outputs[0])),
                       {.add_special = false, .parse_special = true})
              .size());
    return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
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
    out.score = task_.match_part ? metrics::string_match_part(prediction, sample.targets)
                                 : metrics::string_match_all(prediction, sample.targets);
    out.metrics = {{"score", out.score}, {"null", prediction.empty() ? 1.0 : 0.0}};
    out.answer = prediction.substr(0, 200);
    return out;
  }

  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    static constexpr Slicing kSlicings[] = {Slicing::all, Slicing::by_length};
    return fold_means(rows, kSlicings);
  }

 private:
  void read_options(const TaskOptions& options) {
    static const std::vector<std::string> kProtocols = {"p1"}, kPermutations = {"official", "per-sample"};
    const std::string protocol = extra_choice(options, "protocol", kProtocols, "p1");
    permutation_ = extra_choice(options, "permutation", kPermutations, "official");
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
    seed_ = options.seed.value_or(42);
    pick_template(options);
  }

  void pick_template(const TaskOptions& options) {
    template_key_ = extra_text(options, "template").value_or(text_.chat ? "chat" : "base");
    if (text_.chat && !extra_text(options, "template")) {
      const Frame frame = make_frame(text_, "", "", "");
      template_ = frame.before + "{task_template}" + frame.after;
      if (template_.find('{') != template_.rfind('{') || template_.find('}') != template_.rfind('}'))
        throw Error(ErrorCode::unsupported, ErrorSubject::model, "the chat template writes braces",
                    {"ruler_" + task_.name, "RULER's prompts are filled in at braces",
                     "use --template with one of RULER's own"});
      return;
    }
    const char* known = ruler_model_template(template_key_);
    if (known == nullptr) {
      const std::vector<std::string> keys = ruler_template_keys();
      extra_choice(options, "template", keys, "base");
    }
    template_ = known;
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

  Series& series(int64_t length) const {
    const std::lock_guard lock(*mutex_);
    std::unique_ptr<Series>& slot = series_[length];
    if (!slot) {
      datasets::RulerOptions options;
      options.max_length = length;
      options.seed = seed_;
      options.model_template = template_;
      options.per_sample_permutation = permutation_ == "per-sample";
      options.positions = false;
      slot = std::make_unique<Series>(task_, data_, options, *text_.tokenizer);
    }
    return *slot;
  }

  void describe(const std::string& name, const TaskOptions& options) {
    info_.name = name;
    info_.family = "ruler";
    info_.version = "1";
    info_.kind = "generate";
    info_.protocol = "ruler/p1/" + task_.name;
    info_.primary_metric = "score";
    info_.metrics = {{"score"}, {"null", false}};
    info_.cluster = task_.dataset == "squad" ? "article" : "";
    info_.dataset = DatasetInfo{"ruler/" + task_.name, "1", data_.sha256, {}, ""};
    info_.seeds_json = canonical_json(json{{"seed", seed_}});
    info_.official =
        !options.seed && permutation_ == "official" && template_key_ != "qwen-chatml" && template_key_ != "chat";
    info_.config_json = canonical_json(json{{"protocol", info_.protocol},
                                            {"version", info_.version},
                                            {"lengths", lengths_},
                                            {"samples", samples_},
                                            {"seed", seed_},
                                            {"permutation", permutation_},
                                            {"template", template_key_},
                                            {"template_text", template_},
                                            {"prefix_used", true},
                                            {"tokens_to_generate", task_.tokens_to_generate},
                                            {"add_bos", text_.add_bos && !text_.chat},
                                            {"system", text_.system},
                                            {"sources", json::parse(data_.digests_json)}});
  }

  TextContext text_;
  const datasets::RulerTask& task_;
  std::vector<int64_t> lengths_;
  int64_t samples_ = 0;
  uint64_t seed_ = 42;
  std::string permutation_, template_key_, template_;
  RulerData data_;
  TaskInfo info_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  mutable std::map<int64_t, std::unique_ptr<Series>> series_;
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

const std::vector<OptionDef>& ruler_options() {
  static const std::vector<OptionDef> kOptions = {
      {"template", "KEY", "RULER's model template; chat: the checkpoint's own", "base, or chat with --chat-template",
       "template"},
      {"permutation", "HOW", "official: the fixed orders of upstream; per-sample: drawn anew", "official",
       "permutation"},
      {"protocol", "P", "p1: upstream's main branch", "p1", "protocol"},
      {"words", "DIR", "the wonderwords lists", "<data>/ruler", "words"},
      {"english-words", "FILE", "upstream's english_words.json, for ruler_cwe past the lists", "<data>/ruler",
       "english-words"},
      {"essays", "PATH", "folder of essays, or PaulGrahamEssays.json", "<data>/ruler or <data>/niah", "essays"},
      {"punkt", "DIR", "English Punkt parameters", "<data>/ruler/punkt_english", "punkt"},
      {"squad", "FILE", "SQuAD 2.0 dev set", "<data>/ruler", "squad"},
      {"hotpotqa", "FILE", "HotpotQA dev distractor set", "<data>/ruler", "hotpotqa"},
  };
  return kOptions;
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
