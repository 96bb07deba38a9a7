// What a verb may print through: results to standard output, everything else to standard error. Decides once about
// colour, width and progress bars (TTY, NO_COLOR, CLICOLOR_FORCE, --plain, --quiet). Text that came from outside is
// escaped by whoever prints it (base/utf8.h printable, runs/report/table.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/events.h"

namespace hayfork::cli {

struct ConsoleOptions {
  bool quiet = false;  // no notes and no progress; warnings and errors stay
  bool plain = false;  // no colour, no bar, ASCII only
  bool debug = false;  // more about an internal error
};

enum class Style { bold, dim, red, green, yellow };

class Console {
 public:
  explicit Console(const ConsoleOptions& options) { configure(options); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  void configure(const ConsoleOptions& options);  // asks the terminal and the environment

  void out(std::string_view text);   // results. Throws: resource/disk when standard output cannot take it
  void note(std::string_view line);  // one line for people, on standard error; not when quiet
  void warn(std::string_view code, std::string_view message);
  void error(const Error& error);  // its four lines at most
  void finish();                   // flushes the results. Throws as out()

  // A line of standard error that is written over by the next one. Requires: bar().
  void status(std::string_view line);
  void clear_status();

  std::string styled(Style style, std::string_view text, bool standard_error) const;
  bool bar() const { return bar_; }
  bool color_out() const { return color_out_; }
  bool out_is_terminal() const { return out_tty_; }
  bool plain() const { return options_.plain; }
  bool quiet() const { return options_.quiet; }
  bool debug() const { return options_.debug; }
  int width() const { return width_; }  // columns of the terminal, 100 when there is none
  // The command line as given, without the program's name: stored with runs.
  const std::vector<std::string>& command_line() const { return command_line_; }
  void set_command_line(std::vector<std::string> words) { command_line_ = std::move(words); }
  EventSink events();  // prints warnings as they come; lives as long as the console

 private:
  ConsoleOptions options_;
  bool out_tty_ = false, color_out_ = false, color_err_ = false, bar_ = false, status_shown_ = false;
  int width_ = 100;
  std::vector<std::string> command_line_;
};

// The environment is read here and nowhere else. Empty values count as not set.
std::string environment(const std::string& name);

}  // namespace hayfork::cli
