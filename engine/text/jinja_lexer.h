// The template's text cut into tokens, with Jinja's whitespace rules under trim_blocks and lstrip_blocks applied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::engine::jinja {

enum class TokenKind : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  floating,
  op,  // one of the operators, in Token::text
  end
};

struct Token {
  TokenKind kind;
  std::string text;  // decoded, for data and strings
  int line;
};

// `name` is for messages. Throws: Error(corrupt, model) with the line.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace hayfork::engine::jinja
