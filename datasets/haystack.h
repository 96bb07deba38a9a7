// Haystacks: long texts to hide needles in. One is shipped with the product (our own English sentences); any text file
// or folder of .txt files serves as well. A haystack is text and its digest; what it is in tokens is the task's matter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace hayfork::datasets {

struct Haystack {
  std::string name;                // "english", "noise", or the file's or folder's name
  std::string text;                // valid UTF-8, not empty
  std::string sha256;              // of text
  std::vector<std::string> files;  // names in the order they were joined
};

// A file, or a folder whose *.txt files are joined in the byte order of their names, with nothing between them (as
// Kamradt's tester joins them; it takes the file system's order). Subfolders are not entered.
// Throws: not_found (no such path), corrupt (no .txt file, no text at all, invalid UTF-8 with file and offset, above
// 1 GiB), all with subject data.
Haystack load_haystack(const std::filesystem::path& path);

// The shipped one: <dir>/haystack/english.txt in the first of `share_dirs` that has it. Throws: not_found naming them.
Haystack shipped_haystack(std::span<const std::filesystem::path> share_dirs);

// The five sentences that passkey retrieval repeats without end (Mohtashami and Jaggi 2023, arXiv 2305.16300).
Haystack noise_haystack();

}  // namespace hayfork::datasets
