#include "base/digest.h"

#include <openssl/evp.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hayfork {

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  HAY_CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;
Sha256Stream& Sha256Stream::operator=(Sha256Stream&&) noexcept = default;

void Sha256Stream::update(std::span<const std::byte> bytes) {
  HAY_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

void Sha256Stream::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

Sha256 Sha256Stream::finish() {
  Sha256 digest{};
  HAY_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
  return digest;
}

Sha256 sha256(std::string_view bytes) {
  return sha256(std::as_bytes(std::span(bytes)));
}

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256Stream stream;
  stream.update(bytes);
  return stream.finish();
}

std::string hex(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  return hex(sha256(bytes));
}

std::string canonical_json(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hayfork
