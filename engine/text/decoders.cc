#include "engine/text/decoders.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "engine/text/component_json.h"
#include "engine/text/pre_tokenizer_steps.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

std::string join(const std::vector<std::string>& tokens, const char* between = "") {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += between;
    out += tokens[i];
  }
  return out;
}

std::string replaced(const std::string& text, const Matches& matches, const std::string& content) {
  std::string out;
  size_t done = 0;
  for (const auto& [begin, end] : matches) {
    out.append(text, done, begin - done);
    out += content;
    done = end;
  }
  return out.append(text, done);
}

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) spell(token);
    tokens = {replace_invalid_utf8(join(tokens))};
  }
  void spell(std::string& token) const override {
    if (std::optional<std::string> bytes = bytes_of_token(token)) token = std::move(*bytes);
  }
};

// A run of byte tokens is text when it is UTF-8 as a whole; else every byte of it is U+FFFD.
class ByteFallbackDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (!find_invalid_utf8(run)) {
        out.push_back(run);
      } else {
        out.insert(out.end(), run.size(), "\uFFFD");
      }
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of_fallback_token(token); byte >= 0) {
        run += static_cast<char>(byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
  void spell(std::string& token) const override {
    if (const int byte = byte_of_fallback_token(token); byte >= 0) token.assign(1, static_cast<char>(byte));
  }
};

class FuseDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override { tokens = {join(tokens)}; }
  void spell(std::string&) const override {}
};

class StripDecoder final : public Decoder {
 public:
  explicit StripDecoder(const nlohmann::json& json)
      : start_(get_integer(json, "start", 0, 1 << 30)), stop_(get_integer(json, "stop", 0, 1 << 30)) {
    append_utf8(content_, get_char(json, "content"));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      const std::string_view all = token;
      size_t begin = 0;
      for (int64_t i = 0; i < start_ && all.substr(begin).starts_with(content_); ++i) begin += content_.size();
      size_t end = all.size();
      for (int64_t i = 0; i < stop_ && end > begin && all.substr(0, end).ends_with(content_); ++i)
        end -= content_.size();
      token = std::string(all.substr(begin, end - begin));
    }
  }
  void spell(std::string&) const override {}

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const nlohmann::json& json) : pattern_(json), content_(get_string(json, "content")) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) spell(token);
  }
  void spell(std::string& token) const override {
    const Matches matches = pattern_.find_all(token);
    if (!matches.empty()) token = replaced(token, matches, content_);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const MetaspaceRule& rule) : prepends_(rule.prepend != MetaspaceRule::Prepend::never) {
    append_utf8(mark_, rule.replacement);
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], find_all(tokens[i], mark_), i == 0 && prepends_ ? "" : " ");
  }
  void spell(std::string& token) const override { token = replaced(token, find_all(token, mark_), " "); }

 private:
  std::string mark_;
  bool prepends_;
};

class BpeSuffixDecoder final : public Decoder {
 public:
  explicit BpeSuffixDecoder(const nlohmann::json& json) : suffix_(get_string(json, "suffix", "</w>")) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], find_all(tokens[i], suffix_), i + 1 == tokens.size() ? "" : " ");
  }
  void spell(std::string& token) const override { token = replaced(token, find_all(token, suffix_), " "); }

 private:
  std::string suffix_;
};

}  // namespace

DecoderChain::DecoderChain(const nlohmann::json& json) : between_(json.is_null() ? " " : "") {
  add(json);
}

void DecoderChain::add(const nlohmann::json& json) {
  if (json.is_null()) return;
  const std::string type = component_type(json, "decoder");
  if (type == "Sequence") {
    for (const nlohmann::json& part : get_list(json, "decoders")) add(part);
    return;
  }
  byte_level_only_ = steps_.empty() && type == "ByteLevel";
  if (type == "ByteLevel") {
    steps_.push_back(std::make_unique<ByteLevelDecoder>());
  } else if (type == "ByteFallback") {
    steps_.push_back(std::make_unique<ByteFallbackDecoder>());
  } else if (type == "Fuse") {
    steps_.push_back(std::make_unique<FuseDecoder>());
  } else if (type == "Strip") {
    steps_.push_back(std::make_unique<StripDecoder>(json));
  } else if (type == "Replace") {
    steps_.push_back(std::make_unique<ReplaceDecoder>(json));
  } else if (type == "Metaspace") {
    steps_.push_back(std::make_unique<MetaspaceDecoder>(parse_metaspace(json)));
  } else if (type == "BPEDecoder") {
    steps_.push_back(std::make_unique<BpeSuffixDecoder>(json));
  } else {
    unsupported_component("decoder", type);
  }
}

std::string DecoderChain::decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->apply(tokens);
  return join(tokens, between_);
}

std::string DecoderChain::bytes(std::string token) const {
  for (const auto& step : steps_) step->spell(token);
  return token;
}

}  // namespace hayfork::engine
