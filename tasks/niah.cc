#include "tasks/niah.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/json.h"
#include "engine/text/tokenizer.h"
#include "tasks/extras.h"
#include "tasks/fold.h"
#include "tasks/kamradt.h"
#include "tasks/niah_prompt.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

constexpr int64_t kKamradtBuffer = 200;  // final_context_length_buffer of the original

struct Settings {
  const NiahKind* kind = nullptr;
  std::string placement;  // overwrite, insert, kamradt
  int64_t n_needles = 1;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  int64_t samples = 10;
  uint64_t seed = 0;
};

[[noreturn]] void refuse(const std::string& what, const std::string& where, const std::string& why,
                         const std::string& next) {
  throw Error(ErrorCode::usage, ErrorSubject::general, what, {where, why, next});
}

// Powers of two from 4K (or an eighth of a short window) up to the window, 128K at most.
std::vector<int64_t> default_lengths(int64_t window) {
  int64_t top = 131072;
  while (window > 0 && top > window && top > 256) top /= 2;
  std::vector<int64_t> out;
  for (int64_t n = std::max<int64_t>(256, std::min<int64_t>(4096, top / 8)); n <= top; n *= 2) out.push_back(n);
  return out;
}

std::vector<double> default_depths(const std::string& spacing) {
  if (spacing == "sigmoid") return sigmoid_depths(11);
  return {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
}

std::string hinted_kind(const std::string& hints_json) {
  if (hints_json.empty()) return "number";
  const json hints = parse_json(hints_json, "hayfork.json", ErrorSubject::model);
  if (!hints.is_object() || !hints.contains("niah")) return "number";
  const auto refuse = [](const std::string& key, const std::string& why) {
    return Error(ErrorCode::corrupt, ErrorSubject::model, "a hint of the checkpoint cannot be used",
                 {"hayfork.json, " + key, why, "correct it, or give --niah-kind"});
  };
  if (!hints["niah"].is_object()) throw refuse("niah", "want an object");
  const json kind = hints["niah"].value("kind", json("number"));
  if (!kind.is_string()) throw refuse("niah.kind", "want text");
  const std::string name = kind.get<std::string>();
  try {
    find_niah_kind(name);
  } catch (const Error& error) {
    throw refuse("niah.kind", error.summary());
  }
  return name;
}

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

Settings read_settings(const TaskOptions& options, const TextContext& text) {
  check_extras(options, niah_options(), "niah");
  Settings s;
  s.kind = &find_niah_kind(extra_text(options, "kind").value_or(hinted_kind(text.hints_json)));
  static const std::vector<std::string> kPlacements = {"overwrite", "insert", "kamradt"};
  static const std::vector<std::string> kSpacings = {"linear", "sigmoid"};
  s.placement = extra_choice(options, "placement", kPlacements, "overwrite");
  const int64_t most = s.kind->keyed ? 64 : s.kind->min_needles;
  s.n_needles = extra_count(options, "needles", s.kind->min_needles, s.kind->min_needles, most);
  if (s.placement == "kamradt" && s.n_needles > s.kind->min_needles)
    refuse("Kamradt's placement has no needles but those asked for", "needles", "", "leave needles out, or use insert");
  s.lengths = options.lengths.empty() ? default_lengths(text.max_length) : options.lengths;
  const std::string spacing = extra_choice(options, "spacing", kSpacings, "linear");
  s.depths = options.depths.empty() ? default_depths(spacing) : options.depths;
  sort_unique(s.lengths);
  sort_unique(s.depths);
  for (const double d : s.depths)
    if (!(d >= 0 && d <= 100)) refuse("a depth is no percentage", "", "found " + format_number(d), "give 0 to 100");
  if (text.max_length > 0 && s.lengths.back() > text.max_length)
    refuse("the model's window is " + std::to_string(text.max_length) + " tokens but niah needs " +
               std::to_string(s.lengths.back()),
           "niah, length " + std::to_string(s.lengths.back()), "prompt and answer together must fit the window",
           "drop the longer lengths, or pass --allow-beyond-window");
  const bool same_prompts = s.placement == "kamradt" && !s.kind->random;
  s.samples = options.samples.value_or(same_prompts ? 1 : 10);
  if (options.limit) s.samples = std::min(s.samples, *options.limit);
  if (s.samples < 1) refuse("no samples", "niah", "samples and limit must be at least 1", "");
  if (same_prompts && s.samples > 1)
    refuse("every sample of a cell would be the same", "kind " + s.kind->name + ", placement kamradt",
           "nothing in the prompt is drawn", "use one sample, or placement insert");
  s.seed = options.seed.value_or(0);
  return s;
}

datasets::Haystack pick_haystack(const TaskOptions& options, const NiahKind& kind) {
  const std::string named = extra_text(options, "haystack").value_or(kind.noise ? "noise" : "english");
  if (named == "noise") return datasets::noise_haystack();
  if (named == "english") return datasets::shipped_haystack(options.share_dirs);
  return datasets::load_haystack(named);
}

class Niah : public Task {
 public:
  Niah(const std::string& name, const TaskOptions& options, const TextContext& text)
      : text_(text),
        s_(read_settings(options, text)),
        haystack_(pick_haystack(options, *s_.kind)),
        hay_(haystack_, *text.tokenizer),
        n_cells_(static_cast<int64_t>(s_.lengths.size() * s_.depths.size())) {
    for (int64_t r = 0; r < s_.samples; ++r) riddles_.push_back(draw(r));
    if (s_.placement == "kamradt") prepare_kamradt();
    check_lengths();
    describe(name, options.seed.has_value());
    if (s_.lengths.back() > hay_.size() && !s_.kind->noise && options.events)
      options.events({Event::Level::warn, "HAY-W020",
                      "the haystack " + haystack_.name + " has " + std::to_string(hay_.size()) +
                          " tokens and goes round to fill " + std::to_string(s_.lengths.back()),
                      name});
  }

  const TaskInfo& info() const override { return info_; }
  int64_t n_samples() const override { return n_cells_ * s_.samples; }

  SampleKey key(int64_t index) const override {
    const Cell c = cell(index);
    const std::string depth = format_number(c.depth);
    SampleKey key;
    key.doc_id = std::to_string(c.length) + "/" + depth;
    key.repeat = c.repeat;
    key.doc_sha256 = sha256_hex(canonical_json(json{{"protocol", info_.protocol},
                                                    {"length", c.length},
                                                    {"depth", c.depth},
                                                    {"repeat", c.repeat},
                                                    {"seed", s_.seed},
                                                    {"kind", s_.kind->name}}));
    key.ctx_len = c.length;
    key.depth_pct = c.depth;
    key.cluster = std::to_string(s_.seed) + "/" + std::to_string(c.repeat);
    key.seed = static_cast<int64_t>(s_.seed);
    return key;
  }

  std::vector<PlanRow> plan() const override {
    std::vector<PlanRow> rows;
    for (const int64_t length : s_.lengths) {
      const int64_t n = static_cast<int64_t>(s_.depths.size()) * s_.samples;
      rows.push_back({{}, length, n, n * (length - s_.kind->answer_tokens), n * s_.kind->answer_tokens});
    }
    return rows;
  }

  Sample sample(int64_t index) const override {
    const Cell c = cell(index);
    const RiddleIds& riddle = riddles_[static_cast<size_t>(c.repeat)];
    const NiahPrompt prompt = s_.placement == "kamradt"
                                  ? kamradt_prompt(c, riddle)
                                  : build_niah_prompt(hay_, riddle, placement(), s_.kind->min_needles,
                                                      c.length - s_.kind->answer_tokens, c.depth);
    Sample out;
    static_cast<SampleKey&>(out) = key(index);
    const PlacedNeedle& needle = prompt.needles[0];
    out.depth_real = needle.depth_real;
    out.needle_tok = needle.at;
    out.needle_tokens = needle.tokens;
    out.needle_distance = prompt.question_tok - needle.at - needle.tokens;
    out.targets = riddle.riddle.targets;
    out.max_new_tokens = s_.kind->answer_tokens;
    out.recipe_json = recipe(c, riddle, prompt);
    engine::GenerateRequest request;
    request.prompt = prompt.ids;
    request.max_new_tokens = static_cast<int32_t>(s_.kind->answer_tokens);
    request.stops = s_.kind->stops;
    out.requests.emplace_back(std::move(request));
    describe_prompt(out, *text_.tokenizer);
    return out;
  }

  SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const override {
    HAY_CHECK(answers.size() == 1);
    SampleScore out;
    if (const auto* failure = std::get_if<engine::Failure>(&answers[0].result)) {
      out.status = Status::failed;
      out.error = failure->message;
      return out;
    }
    const std::string& response = std::get<engine::GenerateAnswer>(answers[0].result).text;
    out.metrics = s_.kind->judge(response, sample.targets);
    out.score = out.metrics.front().value;
    out.answer = std::string(metrics_answer(response));
    return out;
  }

  std::vector<Aggregate> fold(std::span<const FoldRow> rows) const override {
    static constexpr Slicing kSlicings[] = {Slicing::all, Slicing::by_length, Slicing::by_depth,
                                            Slicing::by_length_and_depth};
    return fold_means(rows, kSlicings);
  }

 private:
  struct Cell {
    int64_t length, repeat;
    double depth;
  };

  // Length by length; within it all depths of a seed together, so that an interrupted run has whole columns first.
  Cell cell(int64_t index) const {
    HAY_CHECK(index >= 0 && index < n_samples());
    const auto n_depths = static_cast<int64_t>(s_.depths.size());
    return {s_.lengths[static_cast<size_t>(index / (n_depths * s_.samples))], index / n_depths % s_.samples,
            s_.depths[static_cast<size_t>(index % n_depths)]};
  }

  Placement placement() const { return s_.placement == "insert" ? Placement::insert : Placement::overwrite; }

  static std::string_view metrics_answer(std::string_view response) {
    const size_t first = response.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    const std::string_view line = response.substr(first, response.find('\n', first) - first);
    return line.substr(0, 200);
  }

  // Everything random about repeat r; the same whatever lengths, depths or samples are asked for.
  RiddleIds draw(int64_t r) const {
    const uint64_t seed = Rng(s_.seed, "niah repeat " + std::to_string(r)).next();
    Rng needle_rng(seed, "needle"), spread_rng(seed, "spread");
    RiddleIds out;
    std::vector<Needle> needles;
    for (int64_t i = 0; i < s_.n_needles; ++i) {
      Needle needle = s_.kind->draw(needle_rng, i, needles);
      Ids ids = encode_after(*text_.tokenizer, needle.text);
      // Needles beside the asked one are as long as it, so that no position depends on which one is asked (rulings B1).
      for (int tries = 0; i >= s_.kind->min_needles && ids.size() != out.needles[0].size() && tries < 1000; ++tries) {
        needle = s_.kind->draw(needle_rng, i, needles);
        ids = encode_after(*text_.tokenizer, needle.text);
      }
      needles.push_back(std::move(needle));
      out.needles.push_back(std::move(ids));
      out.spread.push_back(spread_rng.uniform());
    }
    out.riddle = s_.kind->ask(std::move(needles));
    out.frame = make_frame(text_, out.riddle.before, out.riddle.after, out.riddle.answer_start);
    out.before = encode_start(text_, out.frame.before);
    out.after = encode_after(*text_.tokenizer, out.frame.after, out.frame.chat);
    out.after_stop = encode_after(*text_.tokenizer, "." + out.frame.after, out.frame.chat);
    out.start = s_.placement == "kamradt" ? 0 : hay_.sentence_start(Rng(seed, "haystack").uniform());
    return out;
  }

  void check_lengths() const {
    int64_t smallest = 0;
    for (const RiddleIds& riddle : riddles_) {
      int64_t need = smallest_prompt(riddle, placement()) + s_.kind->answer_tokens;
      if (s_.placement == "kamradt") {
        need = kKamradtBuffer + 1;
        for (const Ids& needle : riddle.needles) need += static_cast<int64_t>(needle.size());
      }
      smallest = std::max(smallest, need);
    }
    if (s_.lengths.front() < smallest)
      refuse("length " + std::to_string(s_.lengths.front()) + " is too small for niah", "kind " + s_.kind->name,
             "frame, needles, question and " + std::to_string(s_.kind->answer_tokens) + " answer tokens must fit",
             "the smallest workable length is " + std::to_string(smallest));
  }

  void prepare_kamradt() {
    stops_ = text_.tokenizer->encode(".", {.add_special = true, .parse_special = false});
    for (const int64_t length : s_.lengths)
      kamradt_hay_.push_back(kamradt_haystack(*text_.tokenizer, haystack_.text, length));
  }

  // Kamradt's context, decoded and tokenized again with the frame around it, as his providers do.
  NiahPrompt kamradt_prompt(const Cell& c, const RiddleIds& riddle) const {
    const auto which = std::find(s_.lengths.begin(), s_.lengths.end(), c.length) - s_.lengths.begin();
    const KamradtContext context = kamradt_context(kamradt_hay_[static_cast<size_t>(which)], riddle.needles, stops_,
                                                   c.length, kKamradtBuffer, c.depth);
    const std::string document = text_.tokenizer->decode(context.ids, false);
    const Ids all = encode_start(text_, riddle.frame.before + document + riddle.frame.after);
    NiahPrompt out;
    out.ids = all;
    out.question_tok = static_cast<int64_t>(all.size() - riddle.after.size());
    // Seams may have moved by a token: positions are those of the pieces.
    for (size_t i = 0; i < riddle.needles.size(); ++i) {
      const auto n = static_cast<int64_t>(riddle.needles[i].size());
      const int64_t last = static_cast<int64_t>(context.ids.size()) - n;
      const int64_t at = context.needle_at[i];
      out.needles.push_back({at + static_cast<int64_t>(riddle.before.size()), n,
                             last > 0 ? 100.0 * static_cast<double>(at) / static_cast<double>(last) : 0, Edge::word});
    }
    out.repeated = c.length > hay_.size();
    return out;
  }

  std::string recipe(const Cell& c, const RiddleIds& riddle, const NiahPrompt& prompt) const {
    json needles = json::array();
    for (size_t i = 0; i < prompt.needles.size(); ++i) {
      const PlacedNeedle& p = prompt.needles[i];
      json needle = {{"tok", p.at}, {"tokens", p.tokens}, {"depth", p.depth_real}};
      if (s_.placement != "kamradt") needle["edge"] = std::string(tasks::name(p.edge));
      if (!riddle.riddle.needles[i].key.empty()) needle["key"] = riddle.riddle.needles[i].key;
      if (!riddle.riddle.needles[i].value.empty()) needle["value"] = riddle.riddle.needles[i].value;
      needles.push_back(std::move(needle));
    }
    return canonical_json(json{{"task", "niah"},
                               {"kind", s_.kind->name},
                               {"placement", s_.placement},
                               {"length", c.length},
                               {"depth", c.depth},
                               {"repeat", c.repeat},
                               {"seed", s_.seed},
                               {"haystack_sha256", haystack_.sha256},
                               {"haystack_start", riddle.start},
                               {"haystack_repeated", prompt.repeated},
                               {"haystack_whole_sentences", prompt.whole},
                               {"question_tok", prompt.question_tok},
                               {"needles", std::move(needles)}});
  }

  void describe(const std::string& name, bool seed_given) {
    info_.name = name;
    info_.family = "niah";
    info_.version = "1";
    info_.kind = "generate";
    info_.protocol = "niah/" + s_.kind->name + "/1";
    info_.primary_metric = s_.kind->metrics.front().name;
    info_.metrics = s_.kind->metrics;
    info_.cluster = "seed index";
    info_.dataset = DatasetInfo{"haystack/" + haystack_.name, "1", haystack_.sha256,
                                static_cast<int64_t>(haystack_.files.size()), ""};
    info_.seeds_json = canonical_json(json{{"seed", s_.seed}});
    info_.official = !seed_given;
    const Riddle& example = riddles_.front().riddle;
    info_.config_json = canonical_json(json{{"protocol", info_.protocol},
                                            {"version", info_.version},
                                            {"kind", s_.kind->name},
                                            {"placement", s_.placement},
                                            {"needles", s_.n_needles},
                                            {"lengths", s_.lengths},
                                            {"depths", s_.depths},
                                            {"samples", s_.samples},
                                            {"seed", s_.seed},
                                            {"haystack", haystack_.name},
                                            {"haystack_sha256", haystack_.sha256},
                                            {"answer_tokens", s_.kind->answer_tokens},
                                            {"stops", s_.kind->stops},
                                            {"frame", {example.before, example.after, example.answer_start}},
                                            {"add_bos", text_.add_bos && !text_.chat},
                                            {"chat", text_.chat != nullptr},
                                            {"system", text_.system}});
  }

  TextContext text_;
  Settings s_;
  datasets::Haystack haystack_;
  HaystackIds hay_;
  int64_t n_cells_;
  std::vector<RiddleIds> riddles_;  // one a repeat
  Ids stops_;                       // Kamradt's ids of a full stop
  std::vector<Ids> kamradt_hay_;    // one a length
  TaskInfo info_;
};

}  // namespace

const std::vector<OptionDef>& niah_options() {
  static const std::vector<OptionDef> kOptions = {
      {"kind", "NAME", "number, secret, passkey, kamradt-sf or kamradt-pizza", "number, or what the checkpoint says"},
      {"placement", "HOW", "overwrite: every other token keeps its place; insert; kamradt: insert as the original does",
       "overwrite"},
      {"needles", "N", "needles in all; those not asked for have other keys (number, secret)", "1"},
      {"haystack", "PATH", "a text file, a folder of .txt files, english (shipped) or noise", "english"},
      {"spacing", "HOW", "depths when none are given: linear or sigmoid", "linear"},
  };
  return kOptions;
}

std::unique_ptr<Task> make_niah(const std::string& name, const TaskOptions& options, const TextContext& text) {
  HAY_CHECK(text.tokenizer != nullptr);
  return std::make_unique<Niah>(name, options, text);
}

}  // namespace hayfork::tasks
