// Reads a tokenizer.json into the parts of a BpeTokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/text/bpe_tokenizer.h"

namespace hayfork::engine {

// `text` is the file's content, `name` its path for messages. Throws: corrupt; unsupported naming the component, the
// model type or the pattern that is not covered.
std::unique_ptr<Tokenizer> load_tokenizer_json(std::string_view text, const std::string& name,
                                               const TokenizerConfig& config, const TokenizerOptions& options);

}  // namespace hayfork::engine
