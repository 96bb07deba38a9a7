// json.dumps as the filter tojson calls it.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/text/jinja_format.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

class Writer {
 public:
  Writer(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  void write(const Value& value, int depth) {
    const Runtime::Level level(rt_);
    const size_t before = out_.size();
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        break;
      case Kind::boolean:
        out_ += value.boolean() ? "true" : "false";
        break;
      case Kind::integer:
        out_ += fmt::format("{}", value.integer());
        break;
      case Kind::floating:
        out_ += number(value.number());
        break;
      case Kind::string:
        out_ += quote_json(value.text(), style_.ascii);
        break;
      case Kind::list:
      case Kind::tuple:
        return write_items(value.items(), depth);
      case Kind::dict:
        return write_dict(value.dict(), depth);
      default:
        rt_.fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
    rt_.charge(out_.size() - before);
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return float_repr(d);
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    const size_t before = out_.size();
    rt_.charge(1 + style_.indent->size() * static_cast<size_t>(depth));
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
    rt_.step(static_cast<int64_t>((out_.size() - before) / 64));
  }

  void write_items(const Values& items, int depth) {
    rt_.charge(2 + items.size() * style_.item_separator.size());
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    out_ += ']';
  }

  std::string key_text(const Value& key) const {
    switch (key.kind()) {
      case Kind::string:
        return key.text();
      case Kind::none:
        return "null";
      case Kind::boolean:
        return key.boolean() ? "true" : "false";
      case Kind::integer:
        return fmt::format("{}", key.integer());
      case Kind::floating:
        return number(key.number());
      default:
        rt_.fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    rt_.charge(2 + entries.size() * (sizeof(void*) + style_.item_separator.size() + style_.key_separator.size()));
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return compare(rt_, a->first, b->first, "<") == -1; });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(depth + 1);
      const std::string key = quote_json(key_text(entries[i]->first), style_.ascii);
      rt_.charge(key.size());
      out_ += key + style_.key_separator;
      write(entries[i]->second, depth + 1);
    }
    new_line(depth);
    out_ += '}';
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  Writer writer(rt, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace hayfork::engine::jinja
