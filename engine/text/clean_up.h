// clean_up_tokenization_spaces of tokenizer_config.json, as transformers 4 applied it to decoded text.
#pragma once

#include <string>

namespace hayfork::engine {

std::string clean_up_spaces(std::string text);

}  // namespace hayfork::engine
