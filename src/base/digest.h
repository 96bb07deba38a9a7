// SHA-256 of bytes and of canonical JSON: the identities of models, plans, prompts and runs.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace hayfork {

using Sha256 = std::array<unsigned char, 32>;

class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  Sha256Stream& operator=(Sha256Stream&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  Sha256 finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256 sha256(std::string_view bytes);
Sha256 sha256(std::span<const std::byte> bytes);
std::string hex(std::span<const unsigned char> bytes);  // lower case
std::string sha256_hex(std::string_view bytes);

// Keys sorted, no blanks, UTF-8 unescaped, numbers as nlohmann's shortest round-trip form. Equal values, equal bytes.
std::string canonical_json(const nlohmann::json& value);

}  // namespace hayfork
