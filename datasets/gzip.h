// Whole data files as text, those in gzip format inflated: upstream projects keep request files as .jsonl.gz.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace hayfork::datasets {

// The file's bytes, inflated when they begin with gzip's magic number (RFC 1952; several members are joined).
// Throws: not_found; corrupt (data) for a damaged stream or more than `limit_bytes` of text.
std::string read_data_file(const std::filesystem::path& path, size_t limit_bytes = size_t{4} << 30);

std::string gunzip(std::string_view bytes, const std::string& name, size_t limit_bytes);

}  // namespace hayfork::datasets
