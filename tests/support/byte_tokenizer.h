// A tokenizer for tests: every byte is a token (ids 0–255), BOS is 256. Exact, reversible, without merges.
#pragma once

#include "engine/text/tokenizer.h"

namespace hayfork::test {

class ByteTokenizer : public engine::Tokenizer {
 public:
  ByteTokenizer();
  std::vector<int32_t> encode(std::string_view text, engine::EncodeOptions options = {}) const override;
  engine::Encoding encode_with_offsets(std::string_view text, engine::EncodeOptions options = {}) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const override;
  std::unique_ptr<engine::DecodeStream> stream(bool skip_special = true) const override;
  int32_t vocab_size() const override { return 257; }
  std::string token_text(int32_t id) const override { return token_bytes(id); }
  std::string token_bytes(int32_t id) const override;
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  bool is_special(int32_t id) const override { return id == 256; }
  bool adds_bos() const override { return false; }
  std::string kind() const override { return "bytes"; }
};

}  // namespace hayfork::test
