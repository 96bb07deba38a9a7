#include "engine/text/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "base/digest.h"
#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "engine/text/decode_stream.h"
#include "engine/text/text_input.h"

namespace hayfork::engine {
namespace {

constexpr std::string_view kMark = "\u2581";  // ▁ stands for a space

std::string with_spaces(std::string_view piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const size_t next = piece.find(kMark, at);
    out += piece.substr(at, next == std::string_view::npos ? next : next - at);
    if (next == std::string_view::npos) break;
    out += ' ';
    at = next + kMark.size();
  }
  return out;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view model, const std::string& name, const TokenizerConfig& config) {
    const sentencepiece::util::Status status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      throw Error(ErrorCode::corrupt, ErrorSubject::model, "not a SentencePiece model",
                  {.where = name, .why = printable(status.ToString()), .next = {}});
    }
    chat_templates_ = config.chat_templates;
    special_tokens_ = config.special_tokens;
    const auto id_of = [&](const char* token_name, int own) -> std::optional<int32_t> {
      if (own >= 0) special_tokens_.emplace(token_name, processor_.IdToPiece(own));
      const auto token = special_tokens_.find(token_name);
      return token == special_tokens_.end() ? std::nullopt : token_to_id(token->second);
    };
    bos_id_ = id_of("bos_token", processor_.bos_id());
    eos_id_ = id_of("eos_token", processor_.eos_id());
    id_of("unk_token", processor_.unk_id());
    id_of("pad_token", processor_.pad_id());
    adds_bos_ = config.add_bos_token.value_or(true) && bos_id_.has_value();
    adds_eos_ = config.add_eos_token.value_or(false) && eos_id_.has_value();
    digest_ =
        sha256_hex(fmt::format("{} {} {}", sha256_hex(model), adds_bos_ ? *bos_id_ : -1, adds_eos_ ? *eos_id_ : -1));
  }

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const override {
    const TextInput input(text);
    std::vector<int> ids;
    check(processor_.Encode(input.text(), &ids));
    std::vector<int32_t> out;
    if (options.add_special && adds_bos_) out.push_back(*bos_id_);
    out.insert(out.end(), ids.begin(), ids.end());
    if (options.add_special && adds_eos_) out.push_back(*eos_id_);
    return out;
  }

  Encoding encode_with_offsets(std::string_view text, EncodeOptions options) const override {
    const TextInput input(text);
    sentencepiece::ImmutableSentencePieceText pieces;
    check(processor_.Encode(input.text(), pieces.mutable_proto()));
    Encoding out;
    out.first_invalid_byte = input.first_invalid_byte();
    const auto add = [&](int32_t id, std::pair<int32_t, int32_t> bytes, std::pair<int32_t, int32_t> chars) {
      out.ids.push_back(id);
      out.byte_offsets.push_back(bytes);
      out.offsets.push_back(chars);
    };
    if (options.add_special && adds_bos_) add(*bos_id_, {0, 0}, {0, 0});
    int32_t byte = 0;
    int32_t chars = 0;  // code points before `byte`; pieces come in order
    const auto chars_before = [&](uint32_t end) {
      chars += static_cast<int32_t>(
          count_code_points(input.text().substr(static_cast<size_t>(byte), end - static_cast<size_t>(byte))));
      byte = static_cast<int32_t>(end);
      return chars;
    };
    for (const auto& piece : pieces.pieces()) {
      const int32_t first = chars_before(piece.begin());
      const int32_t last = chars_before(piece.end());
      add(static_cast<int32_t>(piece.id()), {piece.begin(), piece.end()}, {first, last});
    }
    if (options.add_special && adds_eos_) add(*eos_id_, {0, 0}, {0, 0});
    return out;
  }

  // Control pieces decode to nothing whatever skip_special says: that is SentencePiece's own rule.
  std::string decode(std::span<const int32_t> ids, bool) const override {
    std::vector<int> known;
    known.reserve(ids.size());
    for (const int32_t id : ids)
      if (has(id)) known.push_back(id);
    std::string out;
    check(processor_.Decode(known, &out));
    return out;
  }

  std::unique_ptr<DecodeStream> stream(bool skip_special) const override {
    return std::make_unique<WindowDecodeStream>(
        [this, skip_special](std::span<const int32_t> ids) { return decode(ids, skip_special); });
  }

  int32_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::string token_text(int32_t id) const override { return has(id) ? processor_.IdToPiece(id) : std::string(); }
  std::string token_bytes(int32_t id) const override {
    if (!has(id) || processor_.IsControl(id)) return {};
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) return std::string(1, static_cast<char>(byte_of_fallback_token(piece)));
    return with_spaces(piece);
  }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    return id == processor_.unk_id() && token != processor_.IdToPiece(id) ? std::nullopt : std::optional<int32_t>(id);
  }
  bool is_special(int32_t id) const override {
    return has(id) && (processor_.IsControl(id) || processor_.IsUnknown(id));
  }
  bool adds_bos() const override { return adds_bos_; }
  std::string kind() const override { return "SentencePiece"; }

 private:
  bool has(int32_t id) const { return id >= 0 && id < processor_.GetPieceSize(); }
  static void check(const sentencepiece::util::Status& status) {
    if (status.ok()) return;
    throw Error(ErrorCode::corrupt, ErrorSubject::model, "SentencePiece failed",
                {.where = {}, .why = printable(status.ToString()), .next = {}});
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool adds_bos_ = false, adds_eos_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view model, const std::string& name,
                                              const TokenizerConfig& config) {
  return std::make_unique<SentencePieceTokenizer>(model, name, config);
}

}  // namespace hayfork::engine
