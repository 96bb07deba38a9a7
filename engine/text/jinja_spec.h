// One value written under a width, precision and type: what both of Python's formatting languages come down to.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

inline constexpr int64_t kMaxWidth = 1 << 20;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > = ^ or 0: the type's own
  char sign = '-';
  bool alternate = false;
  char group = 0;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

std::string format_integer(Runtime& rt, int64_t i, const Spec& spec);
std::string format_double(Runtime& rt, double d, const Spec& spec);
std::string format_text(Runtime& rt, const std::string& text, const Spec& spec);

}  // namespace hayfork::engine::jinja
