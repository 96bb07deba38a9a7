#include "tasks/niah_set.h"

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"
#include "metrics/text.h"

namespace hayfork::tasks {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = size_t{16} << 20, kMostNeedles = 64;
constexpr std::string_view kQuestion = "{question}";

struct Item {
  std::vector<std::string> needles, answers;
  std::string question;
};

struct Contents {
  std::string before, after = "\n\n{question}", answer_start;
  int64_t answer_tokens = 50;
  std::vector<std::string> stops;
  std::vector<Item> items;
};

// Reads fields and knows what it has read, so that a misspelt one is not passed over.
class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file) {}

  [[noreturn]] void refuse(const std::string& where, const std::string& why) const {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a needle set cannot be used",
                {file_.string() + (where.empty() ? "" : ", " + where), why, "see docs/ruler.md for the format"});
  }
  void keys(const json& object, const std::string& where, std::initializer_list<const char*> known) const {
    if (!object.is_object()) refuse(where, "want an object");
    for (const auto& [key, value] : object.items())
      if (std::find(known.begin(), known.end(), key) == known.end()) refuse(where, "unknown key \"" + key + "\"");
  }
  std::string text(const json& object, const char* key, const std::string& where, const std::string& otherwise) const {
    if (!object.contains(key)) return otherwise;
    if (!object[key].is_string()) refuse(where, std::string("\"") + key + "\" is no text");
    return object[key].get<std::string>();
  }
  // Texts that are not empty.
  std::vector<std::string> texts(const json& object, const char* key, const std::string& where) const {
    std::vector<std::string> out;
    if (!object.contains(key)) return out;
    if (!object[key].is_array()) refuse(where, std::string("\"") + key + "\" is no list");
    for (const json& one : object[key]) {
      if (!one.is_string() || one.get_ref<const std::string&>().empty())
        refuse(where, std::string("\"") + key + "\" holds something that is no text, or empty");
      out.push_back(one.get<std::string>());
    }
    return out;
  }

 private:
  fs::path file_;
};

Contents read_contents(const json& root, const Reader& reader) {
  reader.keys(root, "", {"before", "after", "answer_start", "answer_tokens", "stops", "items"});
  Contents out;
  out.before = reader.text(root, "before", "", out.before);
  out.after = reader.text(root, "after", "", out.after);
  if (out.after.find(kQuestion) == std::string::npos) reader.refuse("\"after\"", "it has no {question}");
  out.answer_start = reader.text(root, "answer_start", "", "");
  out.stops = reader.texts(root, "stops", "");
  if (root.contains("answer_tokens")) {
    if (!root["answer_tokens"].is_number_integer() || root["answer_tokens"] < 1 || root["answer_tokens"] > 4096)
      reader.refuse("\"answer_tokens\"", "want a whole number from 1 to 4096");
    out.answer_tokens = root["answer_tokens"].get<int64_t>();
  }
  if (!root.contains("items") || !root["items"].is_array() || root["items"].empty())
    reader.refuse("\"items\"", "want a list with at least one item");
  for (const json& one : root["items"]) {
    const std::string where = "item " + std::to_string(out.items.size());
    reader.keys(one, where, {"needles", "question", "answers"});
    Item item{reader.texts(one, "needles", where), reader.texts(one, "answers", where),
              reader.text(one, "question", where, "")};
    if (item.needles.empty() || item.needles.size() > kMostNeedles)
      reader.refuse(where, "want 1 to " + std::to_string(kMostNeedles) + " needles");
    if (item.answers.empty()) reader.refuse(where, "it has no answers");
    if (item.question.empty()) reader.refuse(where, "it has no question");
    if (!out.items.empty() && item.needles.size() != out.items.front().needles.size())
      reader.refuse(where, "every item must have as many needles as the first");
    out.items.push_back(std::move(item));
  }
  return out;
}

// The first line of the answer without white space and final stops around it.
std::string bare(std::string_view response) {
  std::u32string text = to_code_points(metrics::first_answer_line(response));
  static constexpr std::u32string_view kAround = U" \t\r\n.!?\"'\u3000\u3002\uFF01\uFF1F\u201C\u201D\u2018\u2019";
  const size_t first = text.find_first_not_of(kAround), last = text.find_last_not_of(kAround);
  return first == std::u32string::npos ? "" : to_utf8(std::u32string_view(text).substr(first, last + 1 - first));
}

std::vector<MetricValue> judge(const std::string& response, const std::vector<std::string>& targets) {
  const std::string answer = bare(response);
  bool exact = false;
  std::optional<double> rouge;  // none where the answer has no word of a to z or digits
  for (const std::string& target : targets) {
    exact = exact || answer == bare(target);
    if (metrics::rouge1(target, target).f > 0) rouge = std::max(rouge.value_or(0), metrics::rouge1(response, target).f);
  }
  const double share = metrics::string_match_all(response, targets);
  return {{"acc", share}, {"all_found", share == 1 ? 1.0 : 0.0}, {"exact", exact ? 1.0 : 0.0}, {"rouge1", rouge}};
}

std::string with_question(const std::string& after, const std::string& question) {
  const size_t at = after.find(kQuestion);
  return after.substr(0, at) + question + after.substr(at + kQuestion.size());
}

}  // namespace

NiahSet load_niah_set(const fs::path& file) {
  const std::string bytes = read_file(file, ErrorSubject::data, kMostBytes);
  const auto contents = std::make_shared<const Contents>(
      read_contents(parse_json(bytes, file.string(), ErrorSubject::data), Reader(file)));
  NiahSet out;
  out.sha256 = sha256_hex(bytes);
  NiahKind& kind = out.kind;
  kind.name = "set";
  kind.summary = "needles of the user's own";
  kind.answer_tokens = contents->answer_tokens;
  kind.stops = contents->stops;
  kind.metrics = {{"acc"}, {"all_found"}, {"exact"}, {"rouge1"}};
  kind.min_needles = static_cast<int64_t>(contents->items.front().needles.size());
  kind.random = contents->items.size() > 1;
  // The key of a needle is the number of its item.
  kind.draw = [contents](Rng& rng, int64_t index, const std::vector<Needle>& used) {
    const std::string item = used.empty() ? std::to_string(rng.below(contents->items.size())) : used.front().key;
    return Needle{item, "", contents->items[std::stoul(item)].needles[static_cast<size_t>(index)]};
  };
  kind.ask = [contents](std::vector<Needle> needles) {
    const Item& item = contents->items[std::stoul(needles.front().key)];
    return Riddle{std::move(needles), contents->before, with_question(contents->after, item.question),
                  contents->answer_start, item.answers};
  };
  kind.judge = judge;
  return out;
}

}  // namespace hayfork::tasks
