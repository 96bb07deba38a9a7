// Methods of dict, list and tuple.
#include "engine/text/jinja_methods.h"

#include <fmt/format.h>

#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

Value dict_get(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "get", args, {"key", "default"}, 1);
  const Value* found = self.dict().find(rt, *bound[0]);
  return found ? *found : bound.get(1, Value::none());
}

Value dict_items(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "items", args, {});
  Values pairs;
  for (const auto& [key, value] : self.dict().entries()) pairs.push_back(Value::tuple(rt, {key, value}));
  return Value::view(rt, "dict_items", std::move(pairs));
}

Value dict_keys(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "keys", args, {});
  Values keys;
  for (const auto& entry : self.dict().entries()) keys.push_back(entry.first);
  return Value::view(rt, "dict_keys", std::move(keys));
}

Value dict_values(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "values", args, {});
  Values values;
  for (const auto& entry : self.dict().entries()) values.push_back(entry.second);
  return Value::view(rt, "dict_values", std::move(values));
}

Value copy(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "copy", args, {});
  return self;  // nothing can change it, so the copy may be the same
}

Value sequence_count(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "count", args, {"value"}, 1);
  int64_t n = 0;
  const auto next = iterate(rt, self);
  for (Value item; next(item);) n += equal(rt, item, *bound[0]);
  return Value(n);
}

Value sequence_index(Runtime& rt, const Value& self, Args& args) {
  const Bound bound(rt, "index", args, {"value", "start", "stop"}, 1);
  const int64_t n = length(rt, self);
  int64_t start = bound.integer(1, 0);
  int64_t stop = bound.integer(2, n);
  if (start < 0) start = std::max<int64_t>(start + n, 0);
  if (stop < 0) stop += n;
  const auto next = iterate(rt, self);
  Value item;
  for (int64_t i = 0; i < stop && next(item); ++i) {
    if (i >= start && equal(rt, item, *bound[0])) return Value(i);
  }
  rt.fail(fmt::format("{} is not in {}", repr(rt, *bound[0]), type_name(self)));
}

}  // namespace

Method find_container_method(Kind kind, std::string_view name) {
  if (kind == Kind::dict) {
    if (name == "get") return dict_get;
    if (name == "items") return dict_items;
    if (name == "keys") return dict_keys;
    if (name == "values") return dict_values;
    if (name == "copy") return copy;
  }
  if (kind == Kind::list && name == "copy") return copy;
  if (kind == Kind::list || kind == Kind::tuple || kind == Kind::range) {
    if (name == "count") return sequence_count;
    if (name == "index") return sequence_index;
  }
  return nullptr;
}

}  // namespace hayfork::engine::jinja
