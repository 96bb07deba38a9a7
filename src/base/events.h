// What a library wants people to know without printing: warnings with a stable code, handed to a sink that the program
// installs (standard error and the events table of the store). `hayfork explain CODE` documents each.
#pragma once

#include <functional>
#include <string>

namespace hayfork {

struct Event {
  enum class Level { info, warn, error };
  Level level;
  std::string code;     // "HAY-W014"
  std::string message;  // one line
  std::string task;     // empty when not about one
};

using EventSink = std::function<void(const Event&)>;

}  // namespace hayfork
