#include "runs/report/site/arch_mark.h"

namespace hayfork::runs {

Mark arch_mark(const std::string& arch) {
  static const std::map<std::string, Mark> kMarks = {
      {"full", {0, Shape::circle, ""}},      {"swa", {1, Shape::square, "7 3"}},
      {"gdn", {2, Shape::triangle, "2 3"}},  {"mamba2", {3, Shape::diamond, "9 3 2 3"}},
      {"orthros", {4, Shape::star, "12 3"}}, {"hybrid", {5, Shape::down, "5 2 1 2"}}};
  const auto it = kMarks.find(arch);
  return it == kMarks.end() ? Mark{6, Shape::cross, "1 3"} : it->second;
}

const Mark& ArchMarks::of(const std::string& model, const std::string& arch) {
  const auto known = marks_.find(model);
  if (known != marks_.end()) return known->second;
  Mark mark = arch_mark(arch);
  const int number = n_[arch]++;
  mark.hollow = number % 2 == 1;
  return marks_.emplace(model, mark).first->second;
}

}  // namespace hayfork::runs
