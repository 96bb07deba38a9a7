// The tokenizer of a tokenizer.json: added tokens, normalizer, pre-tokenizer, BPE, post-processor and decoder, put
// together as the reference library runs them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/decoders.h"
#include "engine/text/normalizers.h"
#include "engine/text/post_processors.h"
#include "engine/text/pre_tokenizers.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_config.h"

namespace hayfork::engine {

struct BpeTokenizerParts {
  std::unique_ptr<const Normalizer> normalizer;  // may be null
  PreTokenizerPipeline pre_tokenizer;
  Bpe model;
  AddedTokens added;
  PostProcessor post_processor;
  DecoderChain decoder;
  std::string digest;
  std::vector<std::string> warnings;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeTokenizerParts parts, const TokenizerConfig& config, const TokenizerOptions& options);

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const override;
  Encoding encode_with_offsets(std::string_view text, EncodeOptions options) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::unique_ptr<DecodeStream> stream(bool skip_special) const override;
  int32_t vocab_size() const override;
  std::string token_text(int32_t id) const override;
  std::string token_bytes(int32_t id) const override;
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  bool is_special(int32_t id) const override { return parts_.added.special(id); }
  bool adds_bos() const override;
  std::string kind() const override;

 private:
  class Borrowed;
  struct Tracked;
  // Appends the ids of text between added tokens; text that a normalizer or a rewriting step changes is copied first.
  void encode_segment(std::string_view text, const EncodeOptions& options, BpeScratch& scratch,
                      std::vector<int32_t>& ids) const;
  void encode_pieces(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void encode_tracked(std::string_view text, size_t begin, size_t end, const EncodeOptions& options,
                      BpeScratch& scratch, Tracked& out) const;
  void encode_aligned_piece(const AlignedText& piece, BpeScratch& scratch, Encoding& out) const;
  void finish_offsets(std::string_view text, Tracked& tracked) const;
  std::string decode_plain(std::span<const int32_t> ids, bool skip_special) const;
  void append_bytes(int32_t id, bool skip_special, std::string& out) const;
  // The text decoding starts from; nothing for an id without a token or one to leave out.
  std::optional<std::string_view> decode_text(int32_t id, bool skip_special) const;
  void build_byte_table();

  BpeTokenizerParts parts_;
  bool clean_up_spaces_;
  std::string byte_texts_;           // decoder ByteLevel: bytes of all tokens …
  std::vector<uint32_t> byte_ends_;  // … and where each id's end; those of id i begin where i-1's end
  mutable std::mutex mutex_;         // guards idle_
  mutable std::vector<std::unique_ptr<BpeScratch>> idle_;
};

}  // namespace hayfork::engine
