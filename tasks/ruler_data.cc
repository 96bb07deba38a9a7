#include "tasks/ruler_data.h"

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"
#include "datasets/haystack.h"
#include "tasks/extras.h"

namespace hayfork::tasks {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// The option's path, or the first of the names that exists in the data directory.
fs::path find_source(const TaskOptions& options, const std::string& key, const std::vector<std::string>& names) {
  if (const auto given = extra_text(options, key)) return *given;
  std::error_code ignored;
  for (const std::string& name : names)
    if (!options.data_dir.empty() && fs::exists(options.data_dir / name, ignored)) return options.data_dir / name;
  throw Error(ErrorCode::not_found, ErrorSubject::data, "RULER needs " + key,
              {options.data_dir.empty() ? "no data directory" : (options.data_dir / names.front()).string(),
               "it is not part of Hayfork", "name it with --" + key + ", or put it into the data directory"});
}

// A .json with the joined text (as upstream's download writes it), or text files.
std::string essay_text(const fs::path& path) {
  if (path.extension() != ".json") return datasets::load_haystack(path).text;
  const json root = parse_json(read_file(path, ErrorSubject::data), path.string(), ErrorSubject::data);
  if (!root.is_object() || !root.contains("text") || !root["text"].is_string())
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "the essays' file has no \"text\"", {path.string(), "", ""});
  return root["text"].get<std::string>();
}

}  // namespace

datasets::RulerSources RulerData::sources() const {
  const auto address = [](const auto& value) { return value ? &*value : nullptr; };
  return {address(pairs), address(words), address(english_words), address(essays), address(qa)};
}

std::vector<std::string> RulerData::split(const std::string& text) const {
  const std::u32string characters = to_code_points(text);
  std::vector<std::string> out;
  for (const auto& [begin, end] : punkt->sentences(characters))
    out.push_back(to_utf8(std::u32string_view(characters).substr(begin, end - begin)));
  return out;
}

RulerData load_ruler_data(const datasets::RulerTask& task, const TaskOptions& options) {
  RulerData data;
  json digests = json::object();
  if (task.key_type == "words" || task.value_type == "words" || task.generator == "cwe") {
    const datasets::WordLists lists = datasets::load_word_lists(find_source(options, "words", {"ruler"}));
    data.words_release = lists.release;
    digests["words"] = lists.sha256;
    digests["words_release"] = lists.release;
    if (task.generator == "cwe")
      data.words = lists.all();
    else
      data.pairs.emplace(lists);
  }
  if (task.generator == "cwe") {
    const auto given = extra_text(options, "english-words");
    std::error_code ignored;
    const fs::path file = given ? fs::path(*given) : options.data_dir / "ruler" / "english_words.json";
    if (given || (!options.data_dir.empty() && fs::exists(file, ignored))) {
      data.english_words = datasets::load_english_words(file);
      digests["english_words"] = sha256_hex(read_file(file, ErrorSubject::data));
    }
  }
  if (task.haystack == "essay") {
    const std::string text = essay_text(find_source(
        options, "essays", {"ruler/PaulGrahamEssays.json", "ruler/PaulGrahamEssays", "niah/PaulGrahamEssays"}));
    digests["essays"] = sha256_hex(text);
    data.essays = datasets::essay_words(text);
    data.punkt = datasets::Punkt::load(find_source(options, "punkt", {"ruler/punkt_english"}));
    digests["punkt"] = data.punkt->sha256();
  }
  if (task.dataset == "squad")
    data.qa = datasets::load_squad(find_source(
        options, "squad", {"ruler/squad.json", "ruler/dev-v2.0.json", "ruler/squad_dev_v2_3articles.json"}));
  if (task.dataset == "hotpotqa")
    data.qa = datasets::load_hotpot(find_source(
        options, "hotpotqa",
        {"ruler/hotpotqa.json", "ruler/hotpot_dev_distractor_v1.json", "ruler/hotpot_dev_distractor_v1_first53.json"}));
  if (data.qa) digests[task.dataset] = data.qa->sha256;
  data.digests_json = canonical_json(digests);
  data.sha256 = sha256_hex(data.digests_json);
  return data;
}

}  // namespace hayfork::tasks
