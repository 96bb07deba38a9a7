#include "tasks/kamradt.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "engine/text/tokenizer.h"

namespace hayfork::tasks {
namespace {

// Index for an insertion at `depth_pct` of `ids`, walked back to just after a full stop.
int64_t insertion_point(const Ids& ids, std::span<const int32_t> full_stops, double depth_pct) {
  const auto is_stop = [&](int32_t id) {
    return std::find(full_stops.begin(), full_stops.end(), id) != full_stops.end();
  };
  auto p = static_cast<int64_t>(static_cast<double>(ids.size()) * (depth_pct / 100));
  while (p > 0 && !is_stop(ids[static_cast<size_t>(p) - 1])) --p;
  return p;
}

}  // namespace

KamradtContext kamradt_context(std::span<const int32_t> haystack, std::span<const Ids> needles,
                               std::span<const int32_t> full_stops, int64_t length, int64_t buffer, double depth_pct) {
  HAY_CHECK(!needles.empty() && depth_pct >= 0 && depth_pct <= 100);
  int64_t needle_tokens = 0;
  for (const Ids& needle : needles) needle_tokens += static_cast<int64_t>(needle.size());
  const int64_t room = length - buffer - needle_tokens;
  if (room < 1)
    throw Error(ErrorCode::usage, ErrorSubject::general, "the length is too small for the needle",
                {"length " + std::to_string(length),
                 std::to_string(needle_tokens) + " needle tokens and a buffer of " + std::to_string(buffer),
                 "the smallest workable length is " + std::to_string(buffer + needle_tokens + 1)});
  KamradtContext out;
  const auto keep = std::min(static_cast<int64_t>(haystack.size()), room);
  out.ids.assign(haystack.begin(), haystack.begin() + keep);
  const double step = (100 - depth_pct) / static_cast<double>(needles.size());
  double depth = depth_pct;
  for (const Ids& needle : needles) {
    const int64_t at =
        depth_pct == 100 ? static_cast<int64_t>(out.ids.size()) : insertion_point(out.ids, full_stops, depth);
    for (int64_t& earlier : out.needle_at)
      if (earlier >= at) earlier += static_cast<int64_t>(needle.size());
    out.needle_at.push_back(at);
    out.ids.insert(out.ids.begin() + at, needle.begin(), needle.end());
    depth += step;
  }
  return out;
}

Ids kamradt_haystack(const engine::Tokenizer& tokenizer, std::string_view text, int64_t length) {
  const engine::EncodeOptions plain{.add_special = false, .parse_special = false};
  Ids ids = tokenizer.encode(text, plain);
  // Upstream appends the whole set again until it is long enough, then encodes it at once.
  if (static_cast<int64_t>(ids.size()) < length && !ids.empty()) {
    std::string longer;
    for (int64_t have = 0; have < length; have += static_cast<int64_t>(ids.size())) longer += text;
    ids = tokenizer.encode(longer, plain);
  }
  if (static_cast<int64_t>(ids.size()) > length) ids.resize(static_cast<size_t>(length));
  return tokenizer.encode(replace_invalid_utf8(tokenizer.decode(ids, false)), plain);
}

std::vector<double> sigmoid_depths(int64_t n) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) {
    const double x = n == 1 ? 0 : 100.0 * static_cast<double>(i) / static_cast<double>(n - 1);
    const bool end = i == 0 || i == n - 1;
    out.push_back(end ? x : std::round(100 / (1 + std::exp(-0.1 * (x - 50))) * 1000) / 1000);
  }
  return out;
}

}  // namespace hayfork::tasks
