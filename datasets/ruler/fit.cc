#include "datasets/ruler/fit.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hayfork::datasets {

RulerSearch fit_size(const FitRule& rule, int64_t max_length, int64_t budget,
                     const std::function<int64_t(int64_t)>& probe) {
  RulerSearch search;
  const int64_t first = rule.first_size > 0 ? rule.first_size : rule.increment;
  const double rate = static_cast<double>(probe(first)) / static_cast<double>(first);
  const auto length = static_cast<double>(max_length);
  search.lower = rule.increment;
  const double estimate = rule.floor_division ? std::floor(length / rate) * 2 : length / rate * 3;
  search.upper = std::max(static_cast<int64_t>(estimate), 2 * rule.increment);
  int64_t best = -1;
  for (int64_t lower = search.lower, upper = search.upper; lower <= upper;) {
    const int64_t middle = (lower + upper) / 2, total = probe(middle) + budget;
    search.probes.emplace_back(middle, total);
    if (total <= max_length) {
      best = middle;
      lower = middle + 1;
    } else {
      upper = middle - 1;
    }
  }
  search.size = best < 0 ? rule.increment : best;
  return search;
}

RulerSearch fit_linear(const LinearRule& rule, int64_t max_length, int64_t budget,
                       const std::function<int64_t(int64_t)>& probe) {
  RulerSearch search;
  search.lower = rule.increment;
  search.upper = rule.most;
  int64_t size = rule.increment;
  const auto capped = [&] { return rule.most > 0 && size > rule.most; };
  for (int64_t total = budget; total < max_length;) {
    total = probe(size) + budget;
    search.probes.emplace_back(size, total);
    if (total > max_length) {
      size -= rule.increment;
      break;
    }
    const bool before = capped();
    if (!rule.looks_back || !before) size += rule.increment;
    if (rule.looks_back ? before : capped()) {
      size = rule.most;
      break;
    }
  }
  search.size = size;
  return search;
}

std::string python_list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) {
    if (out.size() > 1) out += ", ";
    const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
    out += quote;
    for (const char c : text) {
      if (c == '\n')
        out += "\\n";
      else if (c == '\t')
        out += "\\t";
      else if (c == '\r')
        out += "\\r";
      else if (c == quote || c == '\\')
        out += std::string("\\") + c;
      else
        out += c;
    }
    out += quote;
  }
  return out + "]";
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  size_t size = 0;
  for (const std::string& part : parts) size += part.size() + separator.size();
  std::string out;
  out.reserve(size);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string fill(std::string_view text, const std::vector<std::pair<std::string, std::string>>& values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('{', at);
    out.append(text.substr(at, open - at));
    if (open == std::string_view::npos) break;
    const size_t close = text.find('}', open);
    HAY_CHECK(close != std::string_view::npos);
    const std::string_view name = text.substr(open + 1, close - open - 1);
    const auto it = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == name; });
    HAY_CHECK(it != values.end(), std::string(name));
    out += it->second;
    at = close + 1;
  }
  return out;
}

}  // namespace hayfork::datasets
