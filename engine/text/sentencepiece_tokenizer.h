// The tokenizer of a SentencePiece tokenizer.model, run by libsentencepiece. Text never becomes a control piece here,
// so EncodeOptions::parse_special changes nothing; BOS and EOS are added as tokenizer_config.json says (BOS by
// default).
#pragma once

#include <memory>
#include <string_view>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_config.h"

namespace hayfork::engine {

// `model` is the file's content, `name` its path for messages. Throws: corrupt.
std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view model, const std::string& name,
                                              const TokenizerConfig& config);

}  // namespace hayfork::engine
