// Colours of charts. Sequential: ten steps of cividis, whose luminance rises strictly, so that they survive greyscale
// and red-green deficiency. Text on a colour is black or white, whichever contrasts more (WCAG 2 relative luminance).
#pragma once

#include <cstdint>
#include <string>

namespace hayfork::runs {

struct Colour {
  uint8_t r = 0, g = 0, b = 0;
  bool operator==(const Colour&) const = default;
};

std::string css(Colour colour);       // "#00224e"
Colour from_hex(const char* text);    // Requires: "#rrggbb"
double contrast(Colour a, Colour b);  // 1…21
Colour text_on(Colour background);

enum class Theme {
  cividis,
  classic,  // red, yellow, green as in the first published needle pictures; not for colour-blind readers
};

// t in [0, 1]; values outside are clamped. Cividis has ten steps, [0, 0.1) the first; classic is continuous.
Colour sequential(double t, Theme theme);
// t in [−1, 1]: red, white, blue in nine steps with white around 0.
Colour diverging(double t);

}  // namespace hayfork::runs
