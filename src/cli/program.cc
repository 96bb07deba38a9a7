#include "cli/program.h"

namespace hayfork::cli {

int run_program(int, char**) {
  return 2;
}

}  // namespace hayfork::cli
