#include "tasks/niah_settings.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/numbers.h"
#include "tasks/extras.h"
#include "tasks/kamradt.h"
#include "tasks/niah_set.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

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

// Ascending and distinct; said aloud when that is not what was given.
template <typename T>
void sort_unique(std::vector<T>& values, const std::string& what, const TaskOptions& options) {
  const std::vector<T> given = values;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values == given || !options.events) return;
  std::string used;
  for (const T value : values) used += (used.empty() ? "" : ", ") + format_number(static_cast<double>(value));
  options.events({Event::Level::info, "HAY-I024", what + " are taken once each and in order: " + used, "niah"});
}

void pick_kind(NiahSettings& s, const TaskOptions& options, const TextContext& text) {
  const auto file = extra_text(options, "set"), name = extra_text(options, "kind");
  if (!file) {
    s.kind = std::make_shared<const NiahKind>(find_niah_kind(name.value_or(hinted_kind(text.hints_json))));
    return;
  }
  if (name) refuse("a needle set and a kind contradict each other", "kind " + *name, "", "give one of them");
  NiahSet set = load_niah_set(*file);
  s.kind = std::make_shared<const NiahKind>(std::move(set.kind));
  s.set_sha256 = std::move(set.sha256);
}

}  // namespace

NiahSettings read_niah_settings(const TaskOptions& options, const TextContext& text) {
  check_extras(options, niah_options(), "niah");
  NiahSettings s;
  pick_kind(s, options, text);
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
  sort_unique(s.lengths, "lengths", options);
  sort_unique(s.depths, "depths", options);
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

const std::vector<OptionDef>& niah_options() {
  static const std::vector<OptionDef> kOptions = {
      {"kind", "NAME", "number, secret, passkey, kamradt-sf or kamradt-pizza", "number, or what the checkpoint says"},
      {"placement", "HOW", "overwrite: every other token keeps its place; insert; kamradt: insert as the original does",
       "overwrite"},
      {"needles", "N", "needles in all; those not asked for have other keys (number, secret)", "1"},
      {"set", "FILE", "needles, questions and answers of your own instead of a kind (JSON, any language)", ""},
      {"haystack", "PATH", "a text file, a folder of .txt files, english (shipped) or noise", "english"},
      {"spacing", "HOW", "depths when none are given: linear or sigmoid", "linear"},
  };
  return kOptions;
}

datasets::Haystack pick_haystack(const TaskOptions& options, const NiahKind& kind) {
  const std::string named = extra_text(options, "haystack").value_or(kind.noise ? "noise" : "english");
  if (named == "noise") return datasets::noise_haystack();
  if (named == "english") return datasets::shipped_haystack(options.share_dirs);
  return datasets::load_haystack(named);
}

}  // namespace hayfork::tasks
