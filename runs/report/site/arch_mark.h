// How an architecture looks on every page: one colour, dash and marker each, never colour alone. Colours are classes of
// the style sheet (k0 … k6), chosen for a contrast of 3.8 : 1 and more on white, 7 : 1 on the dark page.
#pragma once

#include <map>
#include <string>

namespace hayfork::runs {

enum class Shape { circle, square, triangle, diamond, star, down, cross };

struct Mark {
  int colour = 6;
  Shape shape = Shape::circle;
  const char* dash = "";  // stroke-dasharray
  bool hollow = false;
};

// full, swa, gdn, mamba2, orthros, hybrid; anything else has the last.
Mark arch_mark(const std::string& arch);

// The marks of models: a second model of one architecture has a hollow marker and a finer dash.
class ArchMarks {
 public:
  const Mark& of(const std::string& model, const std::string& arch);

 private:
  std::map<std::string, Mark> marks_;
  std::map<std::string, int> n_;
};

}  // namespace hayfork::runs
