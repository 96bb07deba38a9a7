#include "runs/report/colours.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace hayfork::runs {
namespace {

int nibble(char c) {
  return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

double linear(uint8_t channel) {
  const double c = channel / 255.0;
  return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

double luminance(Colour c) {
  return 0.2126 * linear(c.r) + 0.7152 * linear(c.g) + 0.0722 * linear(c.b);
}

Colour mix(Colour a, Colour b, double t) {
  const auto channel = [t](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(std::lround(x + (static_cast<double>(y) - x) * t));
  };
  return {channel(a.r, b.r), channel(a.g, b.g), channel(a.b, b.b)};
}

}  // namespace

std::string css(Colour colour) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "#";
  for (const uint8_t c : {colour.r, colour.g, colour.b}) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

Colour from_hex(const char* text) {
  const auto byte = [text](int at) { return static_cast<uint8_t>(16 * nibble(text[at]) + nibble(text[at + 1])); };
  return {byte(1), byte(3), byte(5)};
}

double contrast(Colour a, Colour b) {
  const double la = luminance(a), lb = luminance(b);
  return (std::max(la, lb) + 0.05) / (std::min(la, lb) + 0.05);
}

Colour text_on(Colour background) {
  static constexpr Colour kBlack{0, 0, 0}, kWhite{255, 255, 255};
  return contrast(background, kWhite) >= contrast(background, kBlack) ? kWhite : kBlack;
}

Colour sequential(double t, Theme theme) {
  t = std::clamp(t, 0.0, 1.0);
  if (theme == Theme::classic) {
    static const Colour kLow = from_hex("#f0496e"), kMiddle = from_hex("#ebb839"), kHigh = from_hex("#0cd79f");
    return t < 0.5 ? mix(kLow, kMiddle, 2 * t) : mix(kMiddle, kHigh, 2 * t - 1);
  }
  static constexpr std::array<const char*, 10> kCividis = {"#00224e", "#123570", "#3b496c", "#575d6d", "#707173",
                                                           "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"};
  return from_hex(kCividis[static_cast<size_t>(std::min(9.0, std::floor(t * 10 + 1e-9)))]);
}

Colour diverging(double t) {
  static constexpr std::array<const char*, 9> kRedBlue = {"#b2182b", "#d6604d", "#f4a582", "#fddbc7", "#f7f7f7",
                                                          "#d1e5f0", "#92c5de", "#4393c3", "#2166ac"};
  t = std::clamp(t, -1.0, 1.0);
  return from_hex(kRedBlue[static_cast<size_t>(std::lround(4 + 4 * t))]);
}

}  // namespace hayfork::runs
