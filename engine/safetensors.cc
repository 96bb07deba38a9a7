#include "engine/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "base/files.h"
#include "base/json.h"

namespace hayfork::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

struct TypeRow {
  std::string_view name;
  int bits;
  DType dtype;
};
constexpr std::array kTypes = {
    TypeRow{"BOOL", 8, DType::boolean},
    TypeRow{"F4", 4, DType::other},
    TypeRow{"F6_E2M3", 6, DType::other},
    TypeRow{"F6_E3M2", 6, DType::other},
    TypeRow{"U8", 8, DType::u8},
    TypeRow{"I8", 8, DType::i8},
    TypeRow{"F8_E5M2", 8, DType::other},
    TypeRow{"F8_E4M3", 8, DType::other},
    TypeRow{"F8_E8M0", 8, DType::other},
    TypeRow{"F8_E4M3FNUZ", 8, DType::other},
    TypeRow{"F8_E5M2FNUZ", 8, DType::other},
    TypeRow{"I16", 16, DType::i16},
    TypeRow{"U16", 16, DType::other},
    TypeRow{"F16", 16, DType::f16},
    TypeRow{"BF16", 16, DType::bf16},
    TypeRow{"I32", 32, DType::i32},
    TypeRow{"U32", 32, DType::other},
    TypeRow{"F32", 32, DType::f32},
    TypeRow{"C64", 64, DType::other},
    TypeRow{"F64", 64, DType::f64},
    TypeRow{"I64", 64, DType::i64},
    TypeRow{"U64", 64, DType::other},
};

Error corrupt(const std::string& file, const std::string& where, const std::string& why) {
  return {ErrorCode::corrupt,
          ErrorSubject::model,
          fmt::format("{} is not a whole safetensors file", file),
          {.where = where, .why = why, .next = "copy or download the file again"}};
}

std::string short_name(const std::string& name) {
  return name.size() <= 120 ? name : name.substr(0, 117) + "...";
}

// Bits of the tensor, or nothing when the product overflows 63 bits.
bool checked_bits(const std::vector<int64_t>& shape, int bits, int64_t& total) {
  int64_t product = bits;
  for (const int64_t n : shape) {
    if (__builtin_mul_overflow(product, n, &product)) return false;
  }
  total = product;
  return true;
}

TensorInfo read_entry(const std::string& name, const nlohmann::json& entry, const std::string& file) {
  const std::string where = fmt::format("tensor {}", short_name(name));
  const auto want = [&](bool condition, std::string_view what) {
    if (!condition) throw corrupt(file, where, fmt::format("its header entry has no valid {}", what));
  };
  want(entry.is_object(), "object");
  for (const auto& [key, value] : entry.items()) {
    want(key == "dtype" || key == "shape" || key == "data_offsets", fmt::format("key \"{}\"", short_name(key)));
  }
  want(entry.contains("dtype") && entry["dtype"].is_string(), "dtype");
  want(entry.contains("shape") && entry["shape"].is_array(), "shape");
  want(entry.contains("data_offsets") && entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2,
       "data_offsets");

  TensorInfo tensor{.name = name, .dtype_name = entry["dtype"].get<std::string>()};
  const auto type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.name == tensor.dtype_name; });
  if (type == kTypes.end())
    throw corrupt(file, where, fmt::format("unknown dtype \"{}\"", short_name(tensor.dtype_name)));
  tensor.dtype = type->dtype;

  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const auto number = [&](const nlohmann::json& value, std::string_view what) {
    want(value.is_number_unsigned() && value.get<uint64_t>() <= kMax, what);
    return static_cast<int64_t>(value.get<uint64_t>());
  };
  for (const auto& n : entry["shape"]) tensor.shape.push_back(number(n, "shape"));
  tensor.begin = number(entry["data_offsets"][0], "data_offsets");
  tensor.end = number(entry["data_offsets"][1], "data_offsets");

  int64_t bits = 0;
  if (!checked_bits(tensor.shape, type->bits, bits)) throw corrupt(file, where, "its shape overflows");
  if (tensor.begin > tensor.end || bits % 8 != 0 || tensor.end - tensor.begin != bits / 8) {
    throw corrupt(file, where,
                  fmt::format("{} [{}] takes {} bits, data_offsets give {} … {}", tensor.dtype_name,
                              fmt::join(tensor.shape, ", "), bits, tensor.begin, tensor.end));
  }
  return tensor;
}

}  // namespace

int64_t TensorInfo::n_elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::vector<TensorInfo> parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < 8) throw corrupt(name, "header length", fmt::format("the file has {} bytes", file.size()));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - 8) {
    throw corrupt(name, "header length",
                  fmt::format("the header claims {} bytes, the file has {}, the limit is {}", header_bytes, file.size(),
                              kMaxHeaderBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{') throw corrupt(name, "header", "it does not begin with {");
  const nlohmann::json header = parse_json(text, name + " (header)", ErrorSubject::model, {.max_depth = 8});
  if (!header.is_object()) throw corrupt(name, "header", "it is not an object");

  std::vector<TensorInfo> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key != "__metadata__") {
      tensors.push_back(read_entry(key, entry, name));
      continue;
    }
    if (!entry.is_object()) throw corrupt(name, "__metadata__", "it is not an object");
    for (const auto& [item, value] : entry.items()) {
      if (!value.is_string()) throw corrupt(name, "__metadata__", fmt::format("{} is not a string", short_name(item)));
    }
  }
  // Empty tensors share their offset with a neighbour: the smaller end comes first.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const int64_t data_bytes = static_cast<int64_t>(file.size() - 8 - header_bytes);
  int64_t position = 0;
  for (TensorInfo& tensor : tensors) {
    if (tensor.begin != position) {
      throw corrupt(
          name, fmt::format("tensor {}", short_name(tensor.name)),
          fmt::format("it begins at byte {}, the one before ends at {}: tensors may not overlap or leave holes",
                      tensor.begin, position));
    }
    position = tensor.end;
    if (position > data_bytes) {
      throw corrupt(
          name, fmt::format("tensor {}", short_name(tensor.name)),
          fmt::format("it ends at byte {}, the file has {} bytes of data: it is cut short", position, data_bytes));
    }
    tensor.begin += static_cast<int64_t>(8 + header_bytes);
    tensor.end += static_cast<int64_t>(8 + header_bytes);
  }
  if (position != data_bytes) {
    throw corrupt(name, "end of file", fmt::format("tensors end at byte {}, the data at {}", position, data_bytes));
  }
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : map_(path, ErrorSubject::model), tensors_(parse_safetensors(map_.bytes(), path.string())) {
  by_name_.resize(tensors_.size());
  for (size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(), [&](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](size_t i, std::string_view key) { return tensors_[i].name < key; });
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return map_.bytes().subspan(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.end - tensor.begin));
}

void SafetensorsFile::drop(const TensorInfo& tensor) const {
  map_.drop(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.end - tensor.begin));
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorOut> tensors) {
  std::vector<const TensorOut*> order;
  for (const TensorOut& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorOut* a, const TensorOut* b) {
    return std::make_pair(-size_of(a->dtype), std::string_view(a->name)) <
           std::make_pair(-size_of(b->dtype), std::string_view(b->name));
  });
  const auto bytes_of = [](const TensorOut& tensor) {
    int64_t bytes = size_of(tensor.dtype);
    for (const int64_t n : tensor.shape) bytes *= n;
    return bytes;
  };
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t position = 0;
  for (const TensorOut* tensor : order) {
    const auto type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.dtype == tensor->dtype; });
    HAY_CHECK(tensor->dtype != DType::other && !header.contains(tensor->name), tensor->name);
    header[tensor->name] = {
        {"dtype", type->name}, {"shape", tensor->shape}, {"data_offsets", {position, position + bytes_of(*tensor)}}};
    position += bytes_of(*tensor);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  AtomicFile out(path);
  const uint64_t length = text.size();
  out.write(&length, sizeof length);
  out.write(text.data(), text.size());
  for (const TensorOut* tensor : order) out.write(tensor->data, static_cast<size_t>(bytes_of(*tensor)));
  out.commit();
}

}  // namespace hayfork::engine
