// Tokenizers: text to ids and back, exactly as a checkpoint's own files define it. Two kinds: `tokenizer.json` (BPE;
// what the file says is the oracle, not a Python class around it) and `tokenizer.model` (SentencePiece). This header is
// all that the rest of the engine and the tasks know. Every const method may be called from any number of threads at
// once. Text is UTF-8; invalid bytes are replaced by U+FFFD per maximal subpart before encoding (base/utf8.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hayfork::engine {

struct EncodeOptions {
  bool add_special =
      true;  // let the post-processor add BOS, EOS, …; false for rendered chat templates and continuations
  bool parse_special =
      true;  // special tokens spelled out in the text become control ids; false reads them as plain text
};

struct TokenizerOptions {
  // Applies tokenizer_config's clean_up_tokenization_spaces after decoding, as transformers 4 did. It corrupts code and
  // exact-match answers, so it is off unless results of that library are to be met.
  bool clean_up_spaces = false;
  // Replaces the cl100k pattern that some Mistral checkpoints ship by mistake with the one they were trained with.
  bool fix_mistral_regex = false;
};

// Half-open ranges [first, second) of the text, one per id. Several tokens of one character share its range.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<std::pair<int32_t, int32_t>> offsets;       // in code points; (0, 0) for ids added by the post-processor
  std::vector<std::pair<int32_t, int32_t>> byte_offsets;  // in bytes of the text after replacement of invalid UTF-8
  std::optional<size_t> first_invalid_byte;               // of the text as given; nothing when it was valid UTF-8
};

// Text of a growing list of ids, piece by piece. The pieces joined, with finish() at the end, are decode() of all ids
// (exception: byte-fallback vocabularies, where a later invalid byte can change text that is already out: the rest of
// the full decode is then given by finish()). A piece never ends in half a character.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  // The new text, or nothing while a character is incomplete. Unknown ids give nothing.
  virtual std::optional<std::string> push(int32_t id) = 0;
  // What was held back. Call once, at the end; "" mostly.
  virtual std::string finish() = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `path` is a checkpoint folder (tokenizer.json before tokenizer.model), or one of these files;
  // tokenizer_config.json, special_tokens_map.json and chat_template.jinja are read beside it when they are there.
  // Throws: not_found; corrupt; unsupported naming the component, model type or pattern that is not covered.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& path, TokenizerOptions options = {});
  // Whether `directory` holds a tokenizer that load() would read.
  static bool present(const std::filesystem::path& directory);

  virtual std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const = 0;
  virtual Encoding encode_with_offsets(std::string_view text, EncodeOptions options = {}) const = 0;
  // Ids that no token has (padding rows of the embedding) give nothing. `skip_special` leaves special tokens out.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = true) const = 0;
  // The stream may not outlive the tokenizer.
  virtual std::unique_ptr<DecodeStream> stream(bool skip_special = true) const = 0;

  // One more than the largest id. The embedding may have more rows.
  virtual int32_t vocab_size() const = 0;
  // The token as the vocabulary spells it ("Ġthe", "▁the", "<0x0A>"); "" for an id that no token has.
  virtual std::string token_text(int32_t id) const = 0;
  // The bytes it stands for (" the", "\n"), perhaps a part of a character; "" for an id that no token has.
  virtual std::string token_bytes(int32_t id) const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  // bos_token and eos_token of tokenizer_config.json (or of the SentencePiece model), if set. Whether encode() adds
  // them is decided by the file's post-processor: `adds_bos()` tells.
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  virtual bool adds_bos() const = 0;

  // Name → text of every special token that is set: "bos_token", "eos_token", "pad_token", …: the chat template's
  // variables.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }
  // Source of the chat template with this name ("default" for the only one); nothing when the checkpoint has none.
  std::optional<std::string> chat_template(const std::string& template_name = "default") const;
  const std::map<std::string, std::string>& chat_templates() const { return chat_templates_; }

  // SHA-256 (hex) of what decides ids and decoded text: equal digests, equal behaviour.
  const std::string& digest() const { return digest_; }
  // "byte-level BPE", "BPE with byte fallback", "BPE", "SentencePiece BPE", "SentencePiece unigram".
  virtual std::string kind() const = 0;
  // Things the user should hear about once: a known wrong pattern, ids of special tokens that disagree.
  const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  Tokenizer() = default;
  std::optional<int32_t> bos_id_, eos_id_;
  std::map<std::string, std::string> special_tokens_, chat_templates_;
  std::string digest_;
  std::vector<std::string> warnings_;
};

}  // namespace hayfork::engine
