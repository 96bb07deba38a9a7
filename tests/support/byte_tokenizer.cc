#include "tests/support/byte_tokenizer.h"

#include "base/utf8.h"

namespace hayfork::test {
namespace {

class ByteStream : public engine::DecodeStream {
 public:
  std::optional<std::string> push(int32_t id) override { return std::string(1, static_cast<char>(id)); }
  std::string finish() override { return {}; }
};

}  // namespace

ByteTokenizer::ByteTokenizer() {
  bos_id_ = 256;
  digest_ = "bytes";
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text, engine::EncodeOptions) const {
  std::vector<int32_t> ids;
  for (const unsigned char c : text) ids.push_back(c);
  return ids;
}

engine::Encoding ByteTokenizer::encode_with_offsets(std::string_view text, engine::EncodeOptions options) const {
  engine::Encoding out;
  out.ids = encode(text, options);
  int32_t character = 0;
  for (size_t i = 0; i < text.size(); ++character) {
    const int length = decode_utf8(text, i).length;
    for (int k = 0; k < length; ++k) {  // all bytes of a character share its range
      out.byte_offsets.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(i) + length);
      out.offsets.emplace_back(character, character + 1);
    }
    i += static_cast<size_t>(length);
  }
  return out;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids)
    if (id < 256)
      out += static_cast<char>(id);
    else if (!skip_special)
      out += "<s>";
  return replace_invalid_utf8(out);
}

std::unique_ptr<engine::DecodeStream> ByteTokenizer::stream(bool) const {
  return std::make_unique<ByteStream>();
}

std::string ByteTokenizer::token_bytes(int32_t id) const {
  return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : std::string();
}

std::optional<int32_t> ByteTokenizer::token_to_id(std::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(token[0]);
}

}  // namespace hayfork::test
