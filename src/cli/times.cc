#include "cli/times.h"

#include <charconv>
#include <ctime>

#include <fmt/format.h>

#include "base/error.h"

namespace hayfork::cli {

std::string ago(const std::string& iso) {
  std::tm clock{};
  if (::strptime(iso.c_str(), "%Y-%m-%dT%H:%M:%S", &clock) == nullptr) return iso;
  const double seconds = std::difftime(std::time(nullptr), ::timegm(&clock));
  if (seconds < 0) return iso;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return fmt::format("{}m ago", static_cast<int>(seconds / 60));
  if (seconds < 48 * 3600) return fmt::format("{}h ago", static_cast<int>(seconds / 3600));
  return fmt::format("{}d ago", static_cast<int>(seconds / 86400));
}

double parse_duration(const std::string& text, const std::string& flag) {
  double total = 0;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  bool empty = true;
  for (; at != end || empty; empty = false) {
    double value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    double unit = 1;
    at = next;
    if (at != end) {
      unit = *at == 's' ? 1 : *at == 'm' ? 60 : *at == 'h' ? 3600 : *at == 'd' ? 86400 : 0;
      ++at;
    }
    if (error != std::errc{} || unit == 0 || !(value >= 0) || !(value < 1e9)) {
      throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{}: cannot read \"{}\"", flag, text),
                  {.why = "want 50m, 2h, 1h30m or seconds"});
    }
    total += value * unit;
  }
  return total;
}

}  // namespace hayfork::cli
