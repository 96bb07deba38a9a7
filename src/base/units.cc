#include "base/units.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/error.h"

namespace hayfork {
namespace {

constexpr size_t kMaxValues = 10'000;  // a range with a tiny step is a slip, not a plan

[[noreturn]] void refuse(std::string_view part, const std::string& option, const std::string& why) {
  throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{}: cannot read \"{}\"", option, part),
              {.why = why, .next = "write a list (4k,8k), a range with a step (0-100+10) or with a factor (512-2k*2)"});
}

double parse_number(std::string_view text, const std::string& option) {
  double scale = 1;
  std::string_view digits = text;
  if (!digits.empty()) {
    const char unit = digits.back();
    if (unit == 'k' || unit == 'K') scale = 1024;
    if (unit == 'm' || unit == 'M') scale = 1024.0 * 1024;
    if (scale > 1) digits.remove_suffix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value)) {
    refuse(text, option, "not a number");
  }
  return value * scale;
}

// first-last+step or first-last*factor; a leading minus sign belongs to the number.
void append_range(std::string_view part, const std::string& option, std::vector<double>& out) {
  const size_t dash = part.find('-', 1);
  if (dash == std::string_view::npos) {
    out.push_back(parse_number(part, option));
    return;
  }
  const size_t op = part.find_first_of("+*", dash + 1);
  if (op == std::string_view::npos) refuse(part, option, "a range needs a step: first-last+step or first-last*factor");
  const double first = parse_number(part.substr(0, dash), option);
  const double last = parse_number(part.substr(dash + 1, op - dash - 1), option);
  const double by = parse_number(part.substr(op + 1), option);
  if (last < first) refuse(part, option, "the range ends before it begins");
  if (part[op] == '+' ? by <= 0 : (by <= 1 || first <= 0)) refuse(part, option, "the range never reaches its end");
  for (size_t i = 0;; ++i) {
    const double value =
        part[op] == '+' ? first + by * static_cast<double>(i) : first * std::pow(by, static_cast<double>(i));
    if (value > last * (1 + 1e-12)) break;
    if (out.size() >= kMaxValues) refuse(part, option, fmt::format("more than {} values", kMaxValues));
    out.push_back(value);
  }
}

}  // namespace

std::vector<double> parse_numbers(std::string_view text, const std::string& option) {
  std::vector<double> values;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, comma - begin);
    if (part.empty()) refuse(text, option, "an item is empty");
    append_range(part, option, values);
    begin = comma + 1;
  }
  std::vector<double> unique;
  for (const double value : values) {
    if (std::find(unique.begin(), unique.end(), value) == unique.end()) unique.push_back(value);
  }
  return unique;
}

std::vector<int64_t> parse_counts(std::string_view text, const std::string& option) {
  std::vector<int64_t> counts;
  for (const double value : parse_numbers(text, option)) {
    if (value < 0 || value > 9e15 || value != std::floor(value))
      refuse(text, option, "want whole numbers of 0 or more");
    counts.push_back(static_cast<int64_t>(value));
  }
  return counts;
}

int64_t parse_count(std::string_view text, const std::string& option) {
  const std::vector<int64_t> counts = parse_counts(text, option);
  if (counts.size() != 1) refuse(text, option, "want one number");
  return counts.front();
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

std::string format_count(int64_t n) {
  std::string digits = std::to_string(n < 0 ? -n : n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), " ");
  return (n < 0 ? "-" : "") + digits;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

}  // namespace hayfork
