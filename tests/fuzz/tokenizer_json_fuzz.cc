// A hostile tokenizer.json gives an Error or a tokenizer that encodes and decodes whatever follows it; never a crash.
// The input is the file, then a NUL byte, then the text.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayfork::engine;  // NOLINT: the subject of this file
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view text = cut == std::string_view::npos ? "a b  c\xC3\xA9 12 <s> \xFF" : input.substr(cut + 1);
  try {
    const auto tokenizer = load_tokenizer_json(input.substr(0, cut), "fuzz", {}, {});
    const std::vector<int32_t> ids = tokenizer->encode(text);
    if (tokenizer->encode_with_offsets(text).ids != ids) __builtin_trap();
    tokenizer->decode(ids, false);
    const auto stream = tokenizer->stream();
    for (const int32_t id : ids) stream->push(id);
    stream->finish();
    for (int32_t id = -1; id <= tokenizer->vocab_size() && id < 300; ++id) tokenizer->token_bytes(id);
  } catch (const hayfork::Error&) {
  }
  return 0;
}
