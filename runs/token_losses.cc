#include "runs/token_losses.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/half.h"
#include "runs/zstd.h"

namespace hayfork::runs {
namespace {

constexpr const char *kNll = "token_nll", *kPlaces = "token_places";
constexpr size_t kMaxTokens = size_t{1} << 24;

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(ErrorCode::corrupt, ErrorSubject::database, what, {.why = why, .next = "hayfork db check"});
}

// To nearest, ties to even; past the largest half infinity.
uint16_t half_bits(float value) {
  if (std::isnan(value)) return 0x7E00;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::abs(value);
  if (size >= 65520.0F) return sign | 0x7C00;
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int scale = std::max(exponent, -13) - 11;  // what one step is worth; below 2^-14 steps stay alike
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, -scale)));
  // With the implicit bit the sum carries into the exponent by itself.
  return static_cast<uint16_t>(sign | ((scale + 24) * 1024 + steps));
}

template <typename T>
std::string little_endian(std::span<const T> values) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <typename T>
std::vector<T> unpack(const ArtefactRow& artefact) {
  const auto bytes =
      artefact.body ? zstd_decompress(artefact.body->bytes, kMaxTokens * sizeof(T)) : std::optional<std::string>();
  if (!bytes || bytes->size() % sizeof(T) != 0)
    refuse("the losses of a sample's tokens cannot be read",
           fmt::format("artefact {} ({})", artefact.id, artefact.kind));
  std::vector<T> out(bytes->size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes->data(), bytes->size());
  return out;
}

ArtefactRow packed(const char* kind, const std::string& bytes) {
  ArtefactRow row;
  row.kind = row.name = kind;
  row.mime = "application/zstd";
  row.body = Blob{zstd_compress(bytes)};
  return row;
}

}  // namespace

ArtefactRow token_nll_artefact(std::span<const float> nll) {
  std::vector<uint16_t> halves;
  for (const float value : nll) halves.push_back(half_bits(value));
  return packed(kNll, little_endian<uint16_t>(halves));
}

ArtefactRow token_places_artefact(std::span<const TextRange> places) {
  std::vector<int32_t> ends;
  for (const auto& [begin, end] : places) ends.insert(ends.end(), {begin, end});
  return packed(kPlaces, little_endian<int32_t>(ends));
}

std::optional<TokenLosses> token_losses(std::span<const ArtefactRow> artefacts) {
  std::optional<TokenLosses> out;
  for (const ArtefactRow& artefact : artefacts) {
    if (artefact.kind != kNll || out) continue;
    out.emplace();
    for (const uint16_t bits : unpack<uint16_t>(artefact)) out->nll.push_back(to_float(f16{bits}));
  }
  if (!out) return out;
  for (const ArtefactRow& artefact : artefacts) {
    if (artefact.kind != kPlaces || !out->places.empty()) continue;
    const std::vector<int32_t> ends = unpack<int32_t>(artefact);
    if (ends.size() != 2 * out->nll.size())
      refuse("the losses of a sample's tokens cannot be read",
             fmt::format("artefact {}: {} places of {} tokens", artefact.id, ends.size() / 2, out->nll.size()));
    for (size_t i = 0; i < ends.size(); i += 2) out->places.emplace_back(ends[i], ends[i + 1]);
  }
  return out;
}

std::vector<TextRange> key_spans(std::string_view spans_json) {
  const auto all = nlohmann::json::parse(spans_json, nullptr, false);
  const auto bad = [&] { refuse("key tokens cannot be read", "want [[begin, end], …], ascending and apart"); };
  if (!all.is_array()) bad();
  std::vector<TextRange> out;
  for (const auto& one : all) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_number_integer() || !one[1].is_number_integer()) bad();
    const auto begin = one[0].get<int64_t>(), end = one[1].get<int64_t>();
    if (begin < (out.empty() ? 0 : out.back().second) || end < begin || end > INT32_MAX) bad();
    out.emplace_back(static_cast<int32_t>(begin), static_cast<int32_t>(end));
  }
  return out;
}

std::vector<char> key_marks(std::span<const TextRange> places, std::span<const TextRange> spans) {
  std::vector<char> out(places.size(), 0);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [begin, end] = places[i];
    const auto after =
        std::upper_bound(spans.begin(), spans.end(), begin, [](int32_t b, const TextRange& s) { return b < s.first; });
    out[i] = begin < end && after != spans.begin() && end <= std::prev(after)->second ? 1 : 0;
  }
  return out;
}

}  // namespace hayfork::runs
