#include "cli/program.h"

int main(int argc, char** argv) {
  return hayfork::cli::run_program(argc, argv);
}
