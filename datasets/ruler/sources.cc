#include "datasets/ruler/sources.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"

namespace hayfork::datasets {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

bool is_space(char32_t c) {  // Python's \s for text
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

void sort_distinct(std::vector<std::string>& words) {  // UTF-8 sorts by code point
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
}

fs::path find_list(const fs::path& folder, const std::string& name) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string file = it->path().filename().string();
    if (file == name) return it->path();
    if (file.starts_with("wonderwords") && file.ends_with("_" + name)) found.push_back(it->path());
  }
  if (found.empty())
    throw Error(
        ErrorCode::not_found, ErrorSubject::data, "a word list is missing",
        {(folder / name).string(), "RULER's keys come from the wonderwords lists", "name their folder with --words"});
  return *std::max_element(found.begin(), found.end());
}

std::vector<std::string> read_words(const fs::path& file, Sha256Stream& digest) {
  const std::string text = read_file(file, ErrorSubject::data, size_t{64} << 20);
  digest.update(text);
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string word = text.substr(at, end - at);
    while (!word.empty() && (word.back() == ' ' || word.back() == '\r' || word.back() == '\t')) word.pop_back();
    if (!word.empty()) words.push_back(std::move(word));
    at = end + 1;
  }
  if (words.empty())
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a word list is empty", {file.string(), "", ""});
  return words;
}

[[noreturn]] void malformed(const fs::path& file, const std::string& where) {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, "a question file is malformed",
              {file.string() + ", " + where, "", "use the file as its authors publish it"});
}

const json& member(const json& object, const char* key, const fs::path& file, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) malformed(file, where + ": no \"" + key + "\"");
  return object[key];
}

const std::string& text_of(const json& value, const fs::path& file, const std::string& where) {
  if (!value.is_string()) malformed(file, where + " is no text");
  return value.get_ref<const std::string&>();
}

// Documents sorted and distinct; questions refer to texts until then.
struct Pending {
  std::string question;
  std::vector<std::string> answers, own, neighbours;
  std::string article;
};

QaSet finish(std::vector<std::string> documents, std::vector<Pending> pending, std::string sha256) {
  QaSet set;
  sort_distinct(documents);
  set.documents = std::move(documents);
  set.sha256 = std::move(sha256);
  const auto index = [&](const std::string& text) {
    return static_cast<int64_t>(std::lower_bound(set.documents.begin(), set.documents.end(), text) -
                                set.documents.begin());
  };
  for (Pending& p : pending) {
    QaQuestion q{std::move(p.question), std::move(p.answers), {}, {}, std::move(p.article)};
    for (const std::string& text : p.own) q.own.push_back(index(text));
    for (const std::string& text : p.neighbours) {
      const int64_t i = index(text);
      if (std::find(q.own.begin(), q.own.end(), i) == q.own.end()) q.more.push_back(i);
    }
    set.questions.push_back(std::move(q));
  }
  return set;
}

}  // namespace

WordPairs::WordPairs(const WordLists& lists) : nouns_(lists.nouns) {
  sort_distinct(nouns_);
  std::vector<std::string> prefixes;
  for (const std::string& adjective : lists.adjectives) prefixes.push_back(adjective + "-");
  sort_distinct(prefixes);
  for (size_t i = 0; i < prefixes.size();) {
    // A prefix sorts before those it begins, so that a family is a run.
    size_t end = i + 1;
    while (end < prefixes.size() && prefixes[end].starts_with(prefixes[i])) ++end;
    Group group{size_, prefixes[i], {}};
    if (end > i + 1) {
      for (size_t k = i; k < end; ++k)
        for (const std::string& noun : nouns_) group.own.push_back(prefixes[k] + noun);
      sort_distinct(group.own);
    }
    size_ += group.own.empty() ? nouns_.size() : group.own.size();
    groups_.push_back(std::move(group));
    i = end;
  }
}

std::string WordPairs::at(size_t index) const {
  HAY_CHECK(index < size_);
  const auto next = std::upper_bound(groups_.begin(), groups_.end(), index,
                                     [](size_t i, const Group& group) { return i < group.first; });
  const Group& group = *std::prev(next);
  const size_t within = index - group.first;
  return group.own.empty() ? group.prefix + nouns_[within] : group.own[within];
}

std::vector<std::string> WordLists::all() const {
  std::vector<std::string> out = nouns;
  out.insert(out.end(), adjectives.begin(), adjectives.end());
  out.insert(out.end(), verbs.begin(), verbs.end());
  sort_distinct(out);
  return out;
}

WordLists load_word_lists(const fs::path& folder) {
  WordLists lists;
  Sha256Stream digest;
  lists.nouns = read_words(find_list(folder, "nounlist.txt"), digest);
  lists.adjectives = read_words(find_list(folder, "adjectivelist.txt"), digest);
  lists.verbs = read_words(find_list(folder, "verblist.txt"), digest);
  lists.sha256 = hex(digest.finish());
  lists.release = lists.nouns.size() == 6782 ? "3.0.0" : lists.nouns.size() == 6786 ? "2.2.0" : "unknown";
  return lists;
}

std::vector<std::string> load_english_words(const fs::path& file) {
  const json root =
      parse_json(read_file(file, ErrorSubject::data, size_t{256} << 20), file.string(), ErrorSubject::data);
  if (!root.is_object()) malformed(file, "it is no object");
  std::vector<std::string> words(root.size());
  for (const auto& [key, value] : root.items()) {
    size_t at = words.size();
    if (!key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos)
      at = std::stoul(key);
    if (at >= words.size()) malformed(file, "key \"" + key + "\" is no index");
    words[at] = text_of(value, file, key);
  }
  return words;
}

std::vector<std::string> essay_words(std::string_view text) {
  std::vector<std::string> words(1);
  bool in_space = false;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    if (!is_space(c.code_point)) {
      words.back().append(text, i, static_cast<size_t>(c.length));
      in_space = false;
    } else if (!in_space) {
      words.emplace_back();
      in_space = true;
    }
    i += static_cast<size_t>(c.length);
  }
  return words;
}

QaSet load_squad(const fs::path& file) {
  const std::string bytes = read_file(file, ErrorSubject::data);
  const json root = parse_json(bytes, file.string(), ErrorSubject::data);
  std::vector<std::string> documents;
  std::vector<Pending> pending;
  size_t number = 0;
  for (const json& article : member(root, "data", file, "top")) {
    const std::string where = "article " + std::to_string(number++);
    std::vector<std::string> texts;
    const json& paragraphs = member(article, "paragraphs", file, where);
    for (const json& p : paragraphs) texts.push_back(text_of(member(p, "context", file, where), file, where));
    documents.insert(documents.end(), texts.begin(), texts.end());
    for (const json& p : paragraphs)
      for (const json& qa : member(p, "qas", file, where)) {
        if (member(qa, "is_impossible", file, where) != json(false)) continue;
        Pending q{text_of(member(qa, "question", file, where), file, where), {}, {p["context"]}, texts, where};
        for (const json& a : member(qa, "answers", file, where))
          q.answers.push_back(text_of(member(a, "text", file, where), file, where));
        pending.push_back(std::move(q));
      }
  }
  return finish(std::move(documents), std::move(pending), sha256_hex(bytes));
}

QaSet load_hotpot(const fs::path& file) {
  const std::string bytes = read_file(file, ErrorSubject::data);
  const json root = parse_json(bytes, file.string(), ErrorSubject::data);
  if (!root.is_array()) malformed(file, "it is no list");
  std::vector<std::string> documents;
  std::vector<Pending> pending;
  for (const json& record : root) {
    const std::string where = "record " + std::to_string(pending.size());
    Pending q{text_of(member(record, "question", file, where), file, where),
              {text_of(member(record, "answer", file, where), file, where)},
              {},
              {},
              {}};
    for (const json& paragraph : member(record, "context", file, where)) {
      if (!paragraph.is_array() || paragraph.size() != 2 || !paragraph[1].is_array())
        malformed(file, where + ", context");
      std::string text = text_of(paragraph[0], file, where) + "\n";
      for (const json& sentence : paragraph[1]) text += text_of(sentence, file, where);
      q.own.push_back(text);
      documents.push_back(std::move(text));
    }
    pending.push_back(std::move(q));
  }
  return finish(std::move(documents), std::move(pending), sha256_hex(bytes));
}

}  // namespace hayfork::datasets
