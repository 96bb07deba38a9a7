// Two ways to turn a growing list of ids into text (engine/text/tokenizer.h, DecodeStream).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace hayfork::engine {

// For vocabularies whose decoding is joining bytes: holds back bytes while the text so far would end in U+FFFD.
class ByteDecodeStream final : public DecodeStream {
 public:
  // Appends the bytes of an id (nothing for ids to leave out).
  using AppendBytes = std::function<void(int32_t id, std::string& out)>;
  explicit ByteDecodeStream(AppendBytes append) : append_(std::move(append)) {}
  std::optional<std::string> push(int32_t id) override;
  std::string finish() override;

 private:
  AppendBytes append_;
  std::string pending_;
};

// For any decoder: decodes a window of ids with and without the newest and gives the difference, as the reference
// library does. Where a later byte changes text that is already out, nothing comes until the decoded text goes on from
// it again; finish() then gives the rest of the whole decoded text.
class WindowDecodeStream final : public DecodeStream {
 public:
  using Decode = std::function<std::string(std::span<const int32_t>)>;
  explicit WindowDecodeStream(Decode decode) : decode_(std::move(decode)) {}
  std::optional<std::string> push(int32_t id) override;
  std::string finish() override;

 private:
  Decode decode_;
  std::vector<int32_t> all_, window_;
  std::string prefix_;       // decoded window without what is new
  size_t prefix_count_ = 0;  // ids of the window that made it
  std::string emitted_;
};

}  // namespace hayfork::engine
