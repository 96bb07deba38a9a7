// The packed tokenizers of the large golden data, unpacked and loaded.
#pragma once

#include <memory>
#include <string>

#include "engine/text/tokenizer.h"

namespace hayfork::test {

// tokenizers/<name>.tar.xz of HAYFORK_TEST_DATA. Throws std::runtime_error when it cannot be unpacked.
std::unique_ptr<engine::Tokenizer> load_archived_tokenizer(const std::string& name);

}  // namespace hayfork::test
