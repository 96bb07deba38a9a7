// What may stand at the end of a command line: the one answer behind the completion scripts of all shells.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace hayfork::cli {

struct Candidate {
  std::string word;
  std::string about;  // one line; may be empty
};

struct Completion {
  std::vector<Candidate> candidates;
  std::string files;  // "file" or "dir": paths fit too, and the shell knows them best
};

// `words`: those behind "hayfork", the last one unfinished (perhaps empty). `db`: where runs are looked up, read-only
// and for a tenth of a second at most; faults there mean no candidates.
Completion complete(std::span<const std::string> words, const std::string& db);

}  // namespace hayfork::cli
