#include "tasks/niah_kinds.h"

#include <algorithm>
#include <array>

#include "metrics/text.h"

namespace hayfork::tasks {
namespace {

// ---- What keys are drawn from --------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 64> kAdjectives = {
    "amber",  "ancient", "autumn",    "bitter", "blue",    "bold",   "brave",  "bright", "brisk",  "calm",
    "clever", "copper",  "coral",     "crisp",  "curly",   "dusty",  "eager",  "early",  "faint",  "fierce",
    "frozen", "gentle",  "giant",     "golden", "grand",   "green",  "happy",  "hidden", "hollow", "humble",
    "icy",    "ivory",   "jolly",     "lively", "lonely",  "loud",   "lucky",  "misty",  "modern", "narrow",
    "noble",  "olive",   "patient",   "polite", "proud",   "purple", "quick",  "quiet",  "rapid",  "restless",
    "round",  "royal",   "rusty",     "sacred", "scarlet", "secret", "silent", "silver", "sleepy", "sturdy",
    "sunny",  "velvet",  "wandering", "winter"};
constexpr std::array<std::string_view, 96> kNouns = {
    "anchor",  "apple",   "arrow",  "badger",   "balcony", "barrel",  "beacon",  "blanket",  "bottle",  "bridge",
    "button",  "cabin",   "camera", "canyon",   "carpet",  "castle",  "cello",   "cherry",   "chimney", "clock",
    "compass", "cottage", "cradle", "crown",    "curtain", "dolphin", "drum",    "eagle",    "engine",  "falcon",
    "feather", "fiddle",  "forest", "fountain", "galaxy",  "garden",  "glacier", "guitar",   "hammer",  "harbor",
    "helmet",  "horizon", "island", "jacket",   "jungle",  "kettle",  "ladder",  "lantern",  "lemon",   "library",
    "lizard",  "magnet",  "maple",  "marble",   "meadow",  "mirror",  "monkey",  "mountain", "museum",  "needle",
    "ocean",   "orchard", "otter",  "paddle",   "palace",  "parrot",  "pencil",  "pepper",   "piano",   "pillow",
    "planet",  "pocket",  "puzzle", "rabbit",   "ribbon",  "river",   "rocket",  "saddle",   "sailor",  "shadow",
    "shovel",  "spider",  "spoon",  "station",  "statue",  "stove",   "sunset",  "tailor",   "temple",  "thunder",
    "ticket",  "tunnel",  "turtle", "violin",   "wagon",   "window"};

// One token each for the tokenizers of the shipped checkpoints, which were trained on these cities.
constexpr std::array<std::string_view, 64> kCities = {
    "Lisbon",    "Madrid",   "Paris",  "London",   "Berlin",  "Vienna",   "Prague",  "Warsaw",  "Dublin",  "Oslo",
    "Stockholm", "Helsinki", "Athens", "Rome",     "Milan",   "Naples",   "Turin",   "Geneva",  "Zurich",  "Brussels",
    "Hamburg",   "Munich",   "Cairo",  "Tunis",    "Nairobi", "Lagos",    "Accra",   "Dakar",   "Delhi",   "Mumbai",
    "Tokyo",     "Osaka",    "Kyoto",  "Seoul",    "Beijing", "Shanghai", "Bangkok", "Manila",  "Jakarta", "Sydney",
    "Perth",     "Auckland", "Boston", "Chicago",  "Dallas",  "Denver",   "Houston", "Seattle", "Toronto", "Montreal",
    "Lima",      "Bogota",   "Quito",  "Santiago", "Havana",  "Moscow",   "Kiev",    "Riga",    "Tallinn", "Vilnius",
    "Sofia",     "Belgrade", "Zagreb", "Budapest"};

bool taken(const std::vector<Needle>& used, const std::string& key, const std::string& value) {
  return std::any_of(used.begin(), used.end(), [&](const Needle& n) { return n.key == key || n.value == value; });
}

std::string digits(Rng& rng, int64_t low, int64_t high) {
  return std::to_string(low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1))));
}

// ---- number --------------------------------------------------------------------------------------------------------

Needle draw_number(Rng& rng, int64_t, const std::vector<Needle>& used) {
  for (;;) {
    std::string key(kAdjectives[rng.below(kAdjectives.size())]);
    key += '-';
    key += kNouns[rng.below(kNouns.size())];
    const std::string value = digits(rng, 1000000, 9999999);
    if (!taken(used, key, value)) return {key, value, " The special magic number for " + key + " is " + value + "."};
  }
}

Riddle ask_number(std::vector<Needle> needles) {
  const std::string key = needles[0].key, value = needles[0].value;
  return {std::move(needles),
          "Some special magic numbers are hidden within the following text. Memorize them.\n\n",
          "\n\nWhat is the special magic number for " + key + "?",
          "The special magic number for " + key + " is",
          {value}};
}

std::vector<MetricValue> judge_number(const std::string& response, const std::vector<std::string>& targets) {
  const bool hit = metrics::holds_number(metrics::first_answer_line(response), targets[0]);
  const bool found = metrics::contains(response, targets[0]);
  return {{"acc", hit ? 1.0 : 0.0}, {"substring", found ? 1.0 : 0.0}};
}

const std::vector<MetricDef>& number_metrics() {
  static const std::vector<MetricDef> kMetrics = {{"acc"}, {"substring"}};
  return kMetrics;
}

// ---- secret --------------------------------------------------------------------------------------------------------

Needle draw_secret(Rng& rng, int64_t, const std::vector<Needle>& used) {
  for (;;) {
    const std::string key(kCities[rng.below(kCities.size())]);
    const std::string value = digits(rng, 10000, 99999);
    if (!taken(used, key, value)) return {key, value, " The secret number of " + key + " is " + value + "."};
  }
}

Riddle ask_secret(std::vector<Needle> needles) {
  const std::string key = needles[0].key, value = needles[0].value;
  return {std::move(needles),
          "",
          "\nWhat is the secret number of " + key + "?",
          "The secret number of " + key + " is",
          {value}};
}

// ---- passkey (Mohtashami and Jaggi 2023, arXiv 2305.16300) ---------------------------------------------------------

Needle draw_passkey(Rng& rng, int64_t, const std::vector<Needle>&) {
  const std::string value = digits(rng, 10000, 99999);
  return {"", value, " The pass key is " + value + ". Remember it. " + value + " is the pass key."};
}

Riddle ask_passkey(std::vector<Needle> needles) {
  const std::string value = needles[0].value;
  return {std::move(needles),
          "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you "
          "about the important information there.\n\n",
          "\n\nWhat is the pass key?",
          "The pass key is",
          {value}};
}

// ---- Kamradt's sentences -------------------------------------------------------------------------------------------

// The frame is the one of Fu et al. (Long-Context-Data-Engineering) without its ChatML marker.
Riddle in_a_book(std::vector<Needle> needles, const std::string& question, std::vector<std::string> targets) {
  return {std::move(needles), "This is a very long story book: <book> ",
          " </book>.\n Based on the content of the book, Question: " + question + "\nAnswer:", "", std::move(targets)};
}

Needle draw_kamradt(Rng&, int64_t, const std::vector<Needle>&) {
  return {"San Francisco", "",
          "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.\n"};
}

Riddle ask_kamradt(std::vector<Needle> needles) {
  return in_a_book(std::move(needles), "What is the best thing to do in San Francisco?",
                   {"eat a sandwich and sit in Dolores Park on a sunny day.",
                    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day."});
}

std::vector<MetricValue> judge_kamradt(const std::string& response, const std::vector<std::string>& targets) {
  const bool both = metrics::string_match_all(response, {"sandwich", "dolores park"}) == 1;
  return {{"acc", both ? 1.0 : 0.0},
          {"rouge1", metrics::rouge1(response, targets.at(1)).f},
          {"word_recall", metrics::word_recall(response, targets.at(0))}};
}

Needle draw_pizza(Rng&, int64_t index, const std::vector<Needle>&) {
  static constexpr std::array<std::string_view, 3> kSubjects = {"Figs are", "Prosciutto is", "Goat cheese is"};
  static constexpr std::array<std::string_view, 3> kNames = {"Figs", "Prosciutto", "Goat cheese"};
  const auto i = static_cast<size_t>(index);
  return {std::string(kNames.at(i)), "",
          " " + std::string(kSubjects.at(i)) + " one of the secret ingredients needed to build the perfect pizza. "};
}

Riddle ask_pizza(std::vector<Needle> needles) {
  return in_a_book(std::move(needles), "What are the secret ingredients needed to build the perfect pizza?",
                   {"figs", "prosciutto", "goat cheese"});
}

std::vector<MetricValue> judge_pizza(const std::string& response, const std::vector<std::string>& targets) {
  const double share = metrics::string_match_all(response, targets);
  return {{"acc", share}, {"all_found", share == 1 ? 1.0 : 0.0}};
}

}  // namespace

const std::vector<NiahKind>& niah_kinds() {
  static const std::vector<NiahKind> kKinds = {
      {"number",
       "a seven-digit number for a two-word key",
       32,
       {},
       number_metrics(),
       true,
       1,
       true,
       false,
       draw_number,
       ask_number,
       judge_number},
      {"secret",
       "a five-digit number for a city (what the demo checkpoints know)",
       32,
       {"\n"},
       number_metrics(),
       true,
       1,
       true,
       false,
       draw_secret,
       ask_secret,
       judge_number},
      {"passkey",
       "a pass key in noise sentences",
       32,
       {},
       number_metrics(),
       false,
       1,
       true,
       true,
       draw_passkey,
       ask_passkey,
       judge_number},
      {"kamradt-sf",
       "Kamradt's sentence on San Francisco",
       50,
       {},
       {{"acc"}, {"rouge1"}, {"word_recall"}},
       false,
       1,
       false,
       false,
       draw_kamradt,
       ask_kamradt,
       judge_kamradt},
      {"kamradt-pizza",
       "Kamradt's three pizza ingredients, all asked for",
       50,
       {},
       {{"acc"}, {"all_found"}},
       false,
       3,
       false,
       false,
       draw_pizza,
       ask_pizza,
       judge_pizza},
  };
  return kKinds;
}

const NiahKind& find_niah_kind(const std::string& name) {
  std::string all;
  for (const NiahKind& kind : niah_kinds()) {
    if (kind.name == name) return kind;
    all += (all.empty() ? "" : ", ") + kind.name;
  }
  throw Error(ErrorCode::usage, ErrorSubject::general, "unknown kind of needle \"" + name + "\"",
              {"", "", "it is one of " + all});
}

}  // namespace hayfork::tasks
