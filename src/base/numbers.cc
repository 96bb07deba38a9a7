#include "base/numbers.h"

#include <charconv>

#include "base/error.h"

namespace hayfork {

std::string format_number(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  HAY_CHECK(error == std::errc());
  return std::string(buffer, end);
}

}  // namespace hayfork
