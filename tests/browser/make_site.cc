// make_site FILE.db: the database of tests/support/made_site.h, for the tests in a browser. Prints its run ids as JSON.
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/made_site.h"

namespace {

void print(const char* name, const std::vector<std::string>& ids, const char* end) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < ids.size(); ++i) std::printf("%s\"%s\"", i > 0 ? ", " : "", ids[i].c_str());
  std::printf("]%s", end);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const hayfork::test::MadeSite made = hayfork::test::make_site(argv[1]);
    std::printf("{");
    print("models", made.models, ", ");
    print("series", made.series, ", ");
    print("scaling", made.scaling, ", ");
    print("hostile", {made.hostile}, "}\n");
  } catch (const hayfork::Error& error) {
    std::fprintf(stderr, "%s\n", error.render().c_str());
    return 1;
  }
  return 0;
}
