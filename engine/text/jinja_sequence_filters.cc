// Filters on sequences. map, select and their like are lazy, as in Jinja: they print as nothing useful, have no length
// and are used up by one reading.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "engine/text/jinja_library.h"
#include "engine/text/jinja_text.h"

namespace hayfork::engine::jinja {
namespace {

// "a.b.0": keys and indices one after another.
Values attribute_path(Runtime& rt, const Value& attribute) {
  if (attribute.is(Kind::none)) return {};
  if (!attribute.is(Kind::string)) return {attribute};
  Values path;
  std::string_view text = attribute.text();
  for (;;) {
    const size_t end = std::min(text.find('.'), text.size());
    const std::string part(text.substr(0, end));
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    path.push_back(is_index ? Value(static_cast<int64_t>(std::stoll(part))) : Value::string(rt, part));
    if (end == text.size()) return path;
    text.remove_prefix(end + 1);
  }
}

Value follow(Runtime& rt, Value item, const Values& path, const Value* fallback = nullptr) {
  for (const Value& part : path) {
    item = get_item(rt, item, part);
    if (fallback && !fallback->is(Kind::none) && item.is(Kind::undefined)) item = *fallback;
  }
  return item;
}

Value folded(Runtime& rt, const Value& v, bool case_sensitive) {
  return case_sensitive || !v.is(Kind::string) ? v : Value::string(rt, lower(v.text()));
}

Value first_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "first", args, {});
  Value item;
  return iterate(rt, v)(item) ? item : Value::undefined("No first item, sequence was empty.");
}

Value last_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "last", args, {});
  if (v.is(Kind::generator)) rt.fail("'generator' object is not reversible");
  const Values items = to_items(rt, v);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "list", args, {});
  return Value::list(rt, to_items(rt, v));
}

Value join_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "join", args, {"d", "attribute"});
  const std::string separator = bound[0] ? to_string(rt, *bound[0]) : "";
  const Values path = bound[1] ? attribute_path(rt, *bound[1]) : Values{};
  std::string text;
  bool first = true;
  const auto next = iterate(rt, v);
  for (Value item; next(item);) {
    const std::string part = to_string(rt, follow(rt, item, path));
    rt.charge(part.size() + separator.size());
    if (!first) text += separator;
    first = false;
    text += part;
  }
  return Value::string(rt, std::move(text));
}

Value reverse_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "reverse", args, {});
  if (v.is(Kind::string)) return get_slice(rt, v, Value::none(), Value::none(), Value(int64_t{-1}));
  Values items = to_items(rt, v);
  std::reverse(items.begin(), items.end());
  if (v.is(Kind::generator)) return Value::list(rt, std::move(items));
  const Value reversed = Value::list(rt, std::move(items));
  return Value::generator(rt, "reversed", reversed, iterate(rt, reversed));
}

// Python's sorted: stable, also when reversed.
void sort_by(Runtime& rt, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  const auto less = [&](const auto& a, const auto& b) {
    return (reverse ? compare(rt, b.first, a.first, "<") : compare(rt, a.first, b.first, "<")) == -1;
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
}

Value values_of(Runtime& rt, const std::vector<std::pair<Value, Value>>& keyed) {
  Values items;
  for (const auto& entry : keyed) items.push_back(entry.second);
  return Value::list(rt, std::move(items));
}

Value sort_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(1, false);
  std::vector<Values> paths;
  if (bound[2] && bound[2]->is(Kind::string)) {  // "a,b": by a, then by b
    std::string_view text = bound[2]->text();
    for (;;) {
      const size_t end = std::min(text.find(','), text.size());
      paths.push_back(attribute_path(rt, Value::string(rt, std::string(text.substr(0, end)))));
      if (end == text.size()) break;
      text.remove_prefix(end + 1);
    }
  } else {
    paths.push_back(bound[2] ? attribute_path(rt, *bound[2]) : Values{});
  }
  std::vector<std::pair<Value, Value>> keyed;
  const auto next = iterate(rt, v);
  for (Value item; next(item);) {
    Values key;
    for (const Values& path : paths) key.push_back(folded(rt, follow(rt, item, path), case_sensitive));
    keyed.emplace_back(Value::list(rt, std::move(key)), item);
  }
  sort_by(rt, keyed, bound.truth(0, false));
  return values_of(rt, keyed);
}

Value dictsort_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") rt.fail("You can only sort by either \"key\" or \"value\"");
  if (!v.is(Kind::dict))
    rt.fail(v.is(Kind::undefined) ? v.text() : fmt::format("'{}' object has no attribute 'items'", type_name(v)));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.dict().entries()) {
    keyed.emplace_back(folded(rt, by == "key" ? key : value, bound.truth(0, false)), Value::tuple(rt, {key, value}));
  }
  sort_by(rt, keyed, bound.truth(2, false));
  return values_of(rt, keyed);
}

Value unique_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "unique", args, {"case_sensitive", "attribute"});
  const Values path = bound[1] ? attribute_path(rt, *bound[1]) : Values{};
  const bool case_sensitive = bound.truth(0, false);
  Runtime* const run = &rt;
  return Value::generator(rt, "unique", v,
                          [run, path, case_sensitive, seen = Dict(), next = iterate(rt, v)](Value& out) mutable {
                            while (next(out)) {
                              const Value key = folded(*run, follow(*run, out, path), case_sensitive);
                              if (seen.find(*run, key)) continue;
                              run->hold(192);
                              seen.set(*run, key, Value(true));
                              return true;
                            }
                            return false;
                          });
}

template <bool kMax>
Value extreme(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const Values path = bound[1] ? attribute_path(rt, *bound[1]) : Values{};
  std::optional<Value> best;
  Value best_key;
  const auto next = iterate(rt, v);
  for (Value item; next(item);) {
    const Value key = folded(rt, follow(rt, item, path), bound.truth(0, false));
    if (best && compare(rt, key, best_key, kMax ? ">" : "<") != (kMax ? 1 : -1)) continue;
    best = item;
    best_key = key;
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "sum", args, {"attribute", "start"});
  const Values path = bound[0] ? attribute_path(rt, *bound[0]) : Values{};
  Value total = bound.get(1, Value(int64_t{0}));
  if (total.is(Kind::string)) rt.fail("sum() can't sum strings [use ''.join(seq) instead]");
  const auto next = iterate(rt, v);
  for (Value item; next(item);) total = binary(rt, BinaryOp::add, total, follow(rt, item, path));
  return total;
}

Value items_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "items", args, {});
  if (!v.is(Kind::undefined) && !v.is(Kind::dict)) rt.fail("Can only get item pairs from a mapping.");
  Runtime* const run = &rt;
  return Value::generator(rt, "do_items", v, [run, v, i = size_t{0}](Value& out) mutable {
    if (v.is(Kind::undefined) || i == v.dict().size()) return false;
    const auto& [key, value] = v.dict().entries()[i++];
    out = Value::tuple(*run, {key, value});
    return true;
  });
}

Value nothing(Runtime& rt, const char* what) {
  return Value::generator(rt, what, Value::none(), [](Value&) { return false; });
}

Value map_filter(Runtime& rt, const Value& v, Args& args) {
  if (!truth(v)) return nothing(rt, "sync_do_map");
  Runtime* const run = &rt;
  if (args.positional.empty() && args.find("attribute")) {
    const Bound bound(rt, "map", args, {"attribute", "default"});
    return Value::generator(rt, "sync_do_map", v,
                            [run, path = attribute_path(rt, *bound[0]), fallback = bound.get(1, Value::none()),
                             next = iterate(rt, v)](Value& out) {
                              if (!next(out)) return false;
                              out = follow(*run, out, path, &fallback);
                              return true;
                            });
  }
  if (args.positional.empty()) rt.fail("map requires a filter argument");
  const std::string name = to_string(rt, args.positional[0]);
  const Filter filter = find_filter(name);
  if (!filter) rt.unsupported(fmt::format("the filter {}", name));
  Args rest = args;
  rest.positional.erase(rest.positional.begin());
  return Value::generator(rt, "sync_do_map", v, [run, filter, rest, next = iterate(rt, v)](Value& out) {
    if (!next(out)) return false;
    Args each = rest;
    out = filter(*run, out, each);
    return true;
  });
}

template <bool kKeep, bool kAttribute>
Value choose(Runtime& rt, const Value& v, Args& args) {
  if (!truth(v)) return nothing(rt, "select_or_reject");
  Args rest = args;
  Values path;
  if (kAttribute) {
    if (rest.positional.empty()) rt.fail("Missing parameter for attribute name");
    path = attribute_path(rt, rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = to_string(rt, rest.positional[0]);
    test = find_test(name);
    if (!test) rt.unsupported(fmt::format("the test {}", name));
    rest.positional.erase(rest.positional.begin());
  }
  Runtime* const run = &rt;
  return Value::generator(rt, "select_or_reject", v, [run, test, path, rest, next = iterate(rt, v)](Value& out) {
    while (next(out)) {
      const Value subject = follow(*run, out, path);
      Args each = rest;
      if ((test ? test(*run, subject, each) : truth(subject)) == kKeep) return true;
    }
    return false;
  });
}

Value attr_filter(Runtime& rt, const Value& v, Args& args) {
  const Bound bound(rt, "attr", args, {"name"}, 1);
  const std::string name = bound.text(0, "");
  if (v.is(Kind::dict) && v.dict().find(name)) {  // attributes alone, not keys
    Dict empty;
    return get_attribute(rt, Value::dict(rt, std::move(empty)), name);
  }
  return get_attribute(rt, v, name);
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"first", first_filter},
      {"last", last_filter},
      {"list", list_filter},
      {"join", join_filter},
      {"reverse", reverse_filter},
      {"sort", sort_filter},
      {"dictsort", dictsort_filter},
      {"unique", unique_filter},
      {"min", extreme<false>},
      {"max", extreme<true>},
      {"sum", sum_filter},
      {"items", items_filter},
      {"map", map_filter},
      {"select", choose<true, false>},
      {"reject", choose<false, false>},
      {"selectattr", choose<true, true>},
      {"rejectattr", choose<false, true>},
      {"attr", attr_filter},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace hayfork::engine::jinja
