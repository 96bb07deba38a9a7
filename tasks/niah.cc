#include "tasks/niah.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/json.h"
#include "engine/text/tokenizer.h"
#include "tasks/fold.h"
#include "tasks/kamradt.h"
#include "tasks/niah_prompt.h"
#include "tasks/niah_settings.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

constexpr int64_t kKamradtBuffer = 200;  // final_context_length_buffer of the original

class Niah : public Task {
 public:
  Niah(const std::string& name, const TaskOptions& options, const TextContext& text)
      : text_(text),
        s_(read_niah_settings(options, text)),
        haystack_(pick_haystack(options, *s_.kind)),
        hay_(haystack_, *text.tokenizer),
        n_cells_(static_cast<int64_t>(s_.lengths.size() * s_.depths.size())) {
    for (int64_t r = 0; r < s_.samples; ++r) riddles_.push_back(draw(r));
    if (s_.placement == "kamradt") prepare_kamradt();
    check_lengths();
    describe(name, options.seed.has_value());
    count_split(name, options.events);
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
    const NiahPrompt prompt = make_prompt(c);
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
      // Needles beside the asked one are as long as it, so that no position depends on which one is asked.
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
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  "length " + std::to_string(s_.lengths.front()) + " is too small for niah",
                  {"kind " + s_.kind->name,
                   "frame, needles, question and " + std::to_string(s_.kind->answer_tokens) + " answer tokens must fit",
                   "the smallest workable length is " + std::to_string(smallest)});
  }

  // Needles are put in as ids. Whether a model sees them as it would in a text is a question of the tokenizer, and of
  // the tokens on either side: counted on the shortest length.
  void count_split(const std::string& name, const EventSink& events) const {
    if (!events || (text_.window > 0 && s_.lengths.front() > text_.window)) return;  // such a run is refused
    int64_t n = 0, n_split = 0;
    for (const double depth : s_.depths)
      for (int64_t r = 0; r < std::min<int64_t>(s_.samples, 20); ++r) {
        const NiahPrompt prompt = make_prompt({s_.lengths.front(), r, depth});
        const RiddleIds& riddle = riddles_[static_cast<size_t>(r)];
        for (size_t i = 0; i < prompt.needles.size(); ++i, ++n)
          n_split += is_split(*text_.tokenizer, prompt.ids, prompt.needles[i], riddle.needles[i]);
      }
    if (n_split > 0)
      events({Event::Level::warn, "HAY-W023",
              std::to_string(n_split) + " of " + std::to_string(n) + " needles at length " +
                  std::to_string(s_.lengths.front()) + " are split into other tokens than in running text",
              name});
  }

  NiahPrompt make_prompt(const Cell& c) const {
    const RiddleIds& riddle = riddles_[static_cast<size_t>(c.repeat)];
    if (s_.placement == "kamradt") return kamradt_prompt(c, riddle);
    return build_niah_prompt(hay_, riddle, placement(), s_.kind->min_needles, c.length - s_.kind->answer_tokens,
                             c.depth);
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
      if (is_split(*text_.tokenizer, prompt.ids, p, riddle.needles[i])) needle["split"] = true;
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
    json config = {{"protocol", info_.protocol},
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
                   {"system", text_.system}};
    if (!s_.set_sha256.empty()) config["set_sha256"] = s_.set_sha256;
    info_.config_json = canonical_json(config);
  }

  TextContext text_;
  NiahSettings s_;
  datasets::Haystack haystack_;
  HaystackIds hay_;
  int64_t n_cells_;
  std::vector<RiddleIds> riddles_;  // one a repeat
  Ids stops_;                       // Kamradt's ids of a full stop
  std::vector<Ids> kamradt_hay_;    // one a length
  TaskInfo info_;
};

}  // namespace

std::unique_ptr<Task> make_niah(const std::string& name, const TaskOptions& options, const TextContext& text) {
  HAY_CHECK(text.tokenizer != nullptr);
  return std::make_unique<Niah>(name, options, text);
}

}  // namespace hayfork::tasks
