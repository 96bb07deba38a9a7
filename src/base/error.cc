#include "base/error.h"

#include <fmt/format.h>

namespace hayfork {
namespace {

// One line of a message, whatever came from outside into it: line breaks spelled out, the middle of long ones left out.
std::string one_line(const std::string& text) {
  constexpr size_t kMost = 600, kKept = 280;
  const bool cut = text.size() > kMost;
  size_t end = cut ? kKept : text.size(), begin = cut ? text.size() - kKept : text.size();
  const auto inside = [&](size_t i) { return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  for (int i = 0; i < 3 && inside(end); ++i) --end;
  for (int i = 0; i < 3 && inside(begin); ++i) ++begin;
  const std::string shown = cut ? text.substr(0, end) + " … " + text.substr(begin) : text;
  std::string line;
  for (const char c : shown) {
    if (c == '\n')
      line += "\\n";
    else
      line += c;
  }
  return line;
}

}  // namespace

Error::Error(ErrorCode code, ErrorSubject subject, std::string what, ErrorDetail detail)
    : code_(code), subject_(subject), summary_(std::move(what)), detail_(std::move(detail)) {
  line_ = summary_;
  if (!detail_.where.empty() || !detail_.why.empty()) {
    const char* separator = detail_.where.empty() || detail_.why.empty() ? "" : "; ";
    line_ += fmt::format(" ({}{}{})", detail_.where, separator, detail_.why);
  }
}

std::string Error::render() const {
  std::string text = "error: " + one_line(summary_) + "\n";
  if (!detail_.where.empty()) text += "  where " + one_line(detail_.where) + "\n";
  if (!detail_.why.empty()) text += "  why   " + one_line(detail_.why) + "\n";
  if (!detail_.next.empty()) text += "  next  " + one_line(detail_.next) + "\n";
  return text;
}

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::resource:
      return "resource";
    case ErrorCode::device:
      return "device";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

int exit_code(const Error& error) {
  if (error.code() == ErrorCode::internal) return 70;
  if (error.code() == ErrorCode::usage) return 2;
  if (error.code() == ErrorCode::device) return 10;
  switch (error.subject()) {
    case ErrorSubject::model:
      return 7;
    case ErrorSubject::data:
      return 11;
    case ErrorSubject::database:
    case ErrorSubject::disk:
      return 6;
    case ErrorSubject::memory:
      return 8;
    case ErrorSubject::remote:
      return 9;
    case ErrorSubject::general:
      break;
  }
  return error.code() == ErrorCode::resource ? 8 : error.code() == ErrorCode::unsupported ? 7 : 11;
}

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  throw Error(ErrorCode::internal, ErrorSubject::general,
              fmt::format("internal check failed: {}{}{}", expression, message.empty() ? "" : ": ", message),
              {.where = fmt::format("{}:{}", file, line), .next = "report this with the command that caused it"});
}

}  // namespace hayfork
