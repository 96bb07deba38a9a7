#include "datasets/yaml_config.h"

#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "base/utf8.h"

namespace hayfork::datasets {
namespace {

using Json = nlohmann::ordered_json;

bool is_null(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

std::string_view without_sign(std::string_view text) {
  return text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
}

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

bool is_integer(std::string_view text) {
  if (text.starts_with("0x")) return all_of(text.substr(2), "0123456789abcdefABCDEF");
  if (text.starts_with("0o")) return all_of(text.substr(2), "01234567");
  return all_of(without_sign(text), "0123456789");
}

// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?     YAML 1.2.2, section 10.3.2
bool is_decimal(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  text = without_sign(text);
  const size_t e = text.find_first_of("eE");
  if (e != std::string_view::npos && !all_of(without_sign(text.substr(e + 1)), kDigits)) return false;
  text = text.substr(0, e);
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return all_of(text, kDigits);
  const std::string_view whole = text.substr(0, dot);
  const std::string_view fraction = text.substr(dot + 1);
  return whole.empty() ? all_of(fraction, kDigits)
                       : all_of(whole, kDigits) && (fraction.empty() || all_of(fraction, kDigits));
}

bool is_infinite(std::string_view text) {
  const std::string_view bare = without_sign(text);
  return bare == ".inf" || bare == ".Inf" || bare == ".INF" || text == ".nan" || text == ".NaN" || text == ".NAN";
}

// Builds the value while the parser reports what it reads.
class Builder : public YAML::EventHandler {
 public:
  Builder(const std::string& name, const YamlOptions& options) : name_(name), options_(options) {}

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& why) const {
    const std::string where =
        mark.is_null() ? name_ : fmt::format("{}, line {}, column {}", name_, mark.line + 1, mark.column + 1);
    throw Error(options_.code, options_.subject, "a YAML file cannot be read", {.where = where, .why = why});
  }

  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, nullptr, anchor, "null"); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    add(mark, scalar(mark, tag, text), anchor, text, tag == "?");
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark, "an alias inside of what it names");
    count(mark, found->second.n_values, found->second.depth);
    place(mark, found->second.value, std::nullopt, false);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::array(), "tag:yaml.org,2002:seq");
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::object(), "tag:yaml.org,2002:map");
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Anchor {
    Json value;
    int n_values;
    int depth;
  };
  struct Frame {
    Json value;
    YAML::Mark mark;
    YAML::anchor_t anchor;
    int n_values_before;
    int depth = 1;                   // levels in it, itself included
    std::optional<std::string> key;  // of a map: read, its value not yet
  };

  void count(const YAML::Mark& mark, int n, int depth) {
    if (n_values_ > options_.max_values - n) fail(mark, fmt::format("more than {} values", options_.max_values));
    n_values_ += n;
    if (static_cast<int>(frames_.size()) + depth > options_.max_depth)
      fail(mark, fmt::format("nested deeper than {} levels", options_.max_depth));
    for (size_t i = 0; i < frames_.size(); ++i) {
      frames_[i].depth = std::max(frames_[i].depth, static_cast<int>(frames_.size() - i) + depth);
    }
  }

  void add(const YAML::Mark& mark, Json value, YAML::anchor_t anchor, const std::string& text, bool plain = false) {
    count(mark, 1, 0);
    if (anchor) anchors_[anchor] = {value, 1, 0};
    place(mark, std::move(value), text, plain);
  }

  // Puts a finished value where it belongs. `text`: of a scalar, which alone can be a key.
  void place(const YAML::Mark& mark, Json value, std::optional<std::string> text, bool plain) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_array()) {
      frame.value.push_back(std::move(value));
    } else if (frame.key) {
      frame.value[*frame.key] = std::move(value);
      frame.key.reset();
    } else {
      if (!text) fail(mark, "a key is no plain word");
      if (plain && *text == "<<") fail(mark, "merge keys (<<) are not supported");
      if (frame.value.contains(*text))
        fail(mark, fmt::format("the key \"{}\" stands twice", printable(text->substr(0, 80))));
      frame.key = std::move(text);
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json empty,
            std::string_view own_tag) {
    if (!tag.empty() && tag != "?" && tag != "!" && tag != own_tag)
      fail(mark, fmt::format("the tag {} is not supported", printable(tag.substr(0, 80))));
    if (!frames_.empty() && frames_.back().value.is_object() && !frames_.back().key)
      fail(mark, "a key is no plain word");
    const int before = n_values_;
    count(mark, 1, 1);
    frames_.push_back({std::move(empty), mark, anchor, before});
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.anchor) anchors_[frame.anchor] = {frame.value, n_values_ - frame.n_values_before, frame.depth};
    place(frame.mark, std::move(frame.value), std::nullopt, false);
  }

  Json scalar(const YAML::Mark& mark, const std::string& tag, const std::string& text) const {
    constexpr std::string_view kCore = "tag:yaml.org,2002:";
    std::string_view kind = "plain";
    if (tag == "!")
      kind = "str";
    else if (tag.starts_with(kCore))
      kind = std::string_view(tag).substr(kCore.size());
    else if (!tag.empty() && tag != "?")
      fail(mark, fmt::format("the tag {} is not supported", printable(tag.substr(0, 80))));
    const bool plain = kind == "plain";
    if (kind == "str") return text;
    if ((plain || kind == "null") && is_null(text)) return nullptr;
    if (plain && !options_.typed) return text;
    if (plain || kind == "bool") {
      if (text == "true" || text == "True" || text == "TRUE") return true;
      if (text == "false" || text == "False" || text == "FALSE") return false;
    }
    if ((plain || kind == "int") && is_integer(text)) return integer(mark, text);
    if (plain || kind == "float") {
      if (is_infinite(text)) fail(mark, fmt::format("{} is no finite number", text));
      if (is_decimal(text)) return decimal(mark, text);
    }
    if (!plain)
      fail(mark,
           fmt::format("\"{}\" is no value of type {}", printable(text.substr(0, 80)), printable(kind.substr(0, 80))));
    return text;
  }

  Json integer(const YAML::Mark& mark, std::string_view text) const {
    const bool prefixed = text.starts_with("0x") || text.starts_with("0o");
    const int base = !prefixed ? 10 : text[1] == 'x' ? 16 : 8;
    std::string_view digits = prefixed ? text.substr(2) : text;
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc()) fail(mark, fmt::format("{} is beyond 64 bits", text.substr(0, 80)));
    return value;
  }

  Json decimal(const YAML::Mark& mark, std::string_view text) const {
    std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc()) fail(mark, fmt::format("{} is out of a number's range", text.substr(0, 80)));
    return value;
  }

  const std::string& name_;
  const YamlOptions& options_;
  Json root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchor> anchors_;
  int n_values_ = 0;
};

}  // namespace

Json parse_yaml(std::string_view text, const std::string& name, const YamlOptions& options) {
  Builder builder(name, options);
  const YAML::Mark nowhere = YAML::Mark::null_mark();
  if (text.size() > options.max_bytes) builder.fail(nowhere, fmt::format("larger than {} bytes", options.max_bytes));
  if (const auto bad = find_invalid_utf8(text)) builder.fail(nowhere, fmt::format("invalid UTF-8 at byte {}", *bad));
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    builder.fail(nowhere, fmt::format("a NUL byte at byte {}", nul));
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return nullptr;
    Builder second(name, options);
    if (parser.HandleNextDocument(second)) builder.fail(nowhere, "more than one document");
  } catch (const YAML::Exception& error) {
    builder.fail(error.mark, printable(error.msg.substr(0, 300)));
  }
  return builder.take();
}

Json load_yaml(const std::filesystem::path& path, const YamlOptions& options) {
  return parse_yaml(read_file(path, options.subject, options.max_bytes), path.string(), options);
}

}  // namespace hayfork::datasets
