// The command line: verbs, options, exit codes. Everything but main itself, so that tests can call it.
#pragma once

namespace hayfork::cli {

// Parses, runs the verb, prints errors to standard error. Returns the exit status (interface.md section 2).
int run_program(int argc, char** argv);

}  // namespace hayfork::cli
