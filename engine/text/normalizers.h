// Normalizers of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, Precompiled,
// Nmt, ByteLevel, Sequence.
#pragma once

#include <memory>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "engine/text/aligned_text.h"

namespace hayfork::engine {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text) const = 0;
  // True when apply() would surely change nothing; a cheap look that saves the copy.
  virtual bool leaves_alone(std::string_view text) const = 0;
};

// Null for a JSON null. Throws: unsupported for an unknown type, corrupt for a malformed one.
std::unique_ptr<const Normalizer> make_normalizer(const nlohmann::json& json);

}  // namespace hayfork::engine
