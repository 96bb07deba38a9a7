// The command line: verbs, options, exit codes. Everything but main itself, so that tests can call it.
#pragma once

namespace hayfork::cli {

// Parses, runs the verb, prints errors to standard error. Returns the exit status (src/base/error.h).
int run_program(int argc, char** argv);

}  // namespace hayfork::cli
