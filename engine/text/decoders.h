// Decoders of tokenizer.json: ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder, Sequence. A chain
// works on the list of token texts; joined, the result is the decoded text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace hayfork::engine {

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
  // What one token alone stands for, where that differs from its text: the part of apply() that looks at no neighbours
  // and at no place in the list.
  virtual void spell(std::string& token) const = 0;
};

class DecoderChain {
 public:
  // Only joins the tokens, with spaces, for a JSON null. Throws: unsupported for an unknown type, corrupt for a
  // malformed one.
  explicit DecoderChain(const nlohmann::json& json);

  // Whether the chain is ByteLevel alone, so that decoding is joining bytes.
  bool byte_level_only() const { return byte_level_only_; }
  // Valid UTF-8.
  std::string decode(std::vector<std::string> tokens) const;
  // The bytes of one token, perhaps part of a character.
  std::string bytes(std::string token) const;

 private:
  void add(const nlohmann::json& json);
  std::vector<std::unique_ptr<const Decoder>> steps_;
  const char* between_;  // joins the tokens: a space without any decoder
  bool byte_level_only_ = false;
};

}  // namespace hayfork::engine
