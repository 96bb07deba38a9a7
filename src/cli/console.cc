#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "base/utf8.h"

namespace hayfork::cli {
namespace {

const char* code_of(Style style) {
  switch (style) {
    case Style::bold:
      return "1";
    case Style::dim:
      return "2";
    case Style::red:
      return "31";
    case Style::green:
      return "32";
    case Style::yellow:
      return "33";
  }
  return "0";
}

// https://bixense.com/clicolors and https://no-color.org: NO_COLOR wins over CLICOLOR_FORCE, both over the terminal.
bool use_color(bool tty, bool plain) {
  if (plain || !environment("NO_COLOR").empty()) return false;
  const std::string force = environment("CLICOLOR_FORCE");
  if (!force.empty() && force != "0") return true;
  return tty && environment("TERM") != "dumb";
}

void to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

void Console::configure(const ConsoleOptions& options) {
  options_ = options;
  out_tty_ = ::isatty(STDOUT_FILENO) == 1;
  const bool err_tty = ::isatty(STDERR_FILENO) == 1;
  color_out_ = use_color(out_tty_, options.plain);
  color_err_ = use_color(err_tty, options.plain);
  bar_ = err_tty && !options.plain && !options.quiet && environment("TERM") != "dumb";
  winsize size{};
  if (out_tty_ && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) width_ = size.ws_col;
}

void Console::out(std::string_view text) {
  if (status_shown_) clear_status();
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw Error(ErrorCode::resource, ErrorSubject::disk, "cannot write the results",
                {.where = "standard output", .why = std::strerror(errno)});
  }
}

void Console::finish() {
  if (std::fflush(stdout) != 0) {
    throw Error(ErrorCode::resource, ErrorSubject::disk, "cannot write the results",
                {.where = "standard output", .why = std::strerror(errno)});
  }
}

void Console::note(std::string_view line) {
  if (options_.quiet) return;
  if (status_shown_) clear_status();
  to_stderr(fmt::format("{}\n", printable(line)));
}

void Console::warn(std::string_view code, std::string_view message) {
  if (status_shown_) clear_status();
  to_stderr(fmt::format("{} {}{}\n", styled(Style::yellow, "warning:", true), printable(message),
                        code.empty() ? "" : fmt::format(" ({})", code)));
}

void Console::error(const Error& error) {
  if (status_shown_) clear_status();
  std::string text = printable(error.render());
  if (text.starts_with("error:")) text = styled(Style::red, "error:", true) + text.substr(6);
  to_stderr(text);
}

void Console::status(std::string_view line) {
  HAY_CHECK(bar_);
  to_stderr(fmt::format("\r\x1b[K{}", line));
  status_shown_ = true;
}

void Console::clear_status() {
  if (!status_shown_) return;
  to_stderr("\r\x1b[K");
  status_shown_ = false;
}

std::string Console::styled(Style style, std::string_view text, bool standard_error) const {
  if (!(standard_error ? color_err_ : color_out_)) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code_of(style), text);
}

EventSink Console::events() {
  return [this](const Event& event) {
    if (event.level == Event::Level::info) {
      note(printable(event.message));
    } else {
      warn(event.code, event.message);
    }
  };
}

}  // namespace hayfork::cli
