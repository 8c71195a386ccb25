#include "runtime/guide/guide_bench.hpp"

#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/json/json_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

namespace troupe::guides {

namespace {

/// This thread's time on a processor, in microseconds: unlike the wall's, it does not count what neighbours take.
double thread_time() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// What an empty measurement takes.
double empty_time() {
  double least = 1e9;
  for (int i = 0; i < 1000; ++i) {
    const auto start = thread_time();
    least = std::min(least, thread_time() - start);
  }
  return least;
}

double microseconds_since(double start) {
  static const double empty = empty_time();
  return std::max(0., thread_time() - start - empty);
}

time_summary summary_of(std::vector<double> values) {
  if (values.empty())
    return {};
  std::ranges::sort(values);
  const auto at = [&](double p) {
    return values[std::min(values.size() - 1, static_cast<std::size_t>(static_cast<double>(values.size()) * p))];
  };
  double sum = 0;
  for (const auto v : values)
    sum += v;
  return {sum / static_cast<double>(values.size()), at(.5), at(.9), at(.99), values.back()};
}

/// The digits of Python's repr(float).
std::string python_number(double v) {
  std::array<char, 64> text;
  const auto magnitude = std::fabs(v);
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto [end, ok] = std::to_chars(text.data(), text.data() + text.size(), v,
                                       scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string result(text.data(), end);
  return scientific || result.find('.') != result.npos ? result : result + ".0";
}

/// Appends a JSON value as Python's json.dumps(value, ensure_ascii=False) writes it.
void append_python_json(std::string& out, json::value v) {
  using type = simdjson::dom::element_type;
  switch (v.type()) {
    case type::OBJECT: {
      const char* joint = "{";
      for (const auto member : json::object(v)) {
        (out += joint) += json_text(member.key);
        out += ": ";
        append_python_json(out, member.value);
        joint = ", ";
      }
      out += *joint == '{' ? "{}" : "}";
      break;
    }
    case type::ARRAY: {
      const char* joint = "[";
      for (const auto item : json::array(v)) {
        out += joint;
        append_python_json(out, item);
        joint = ", ";
      }
      out += *joint == '[' ? "[]" : "]";
      break;
    }
    case type::STRING: out += json_text(std::string_view(v)); break;
    case type::DOUBLE: out += python_number(double(v)); break;
    default: out += json::minified(v);
  }
}

} // namespace

std::optional<std::size_t> rejected_at(guide_state state, const guide_vocabulary& vocabulary,
                                       const std::vector<token_id>& ids, std::vector<double>* mask_us) {
  std::vector<std::uint64_t> mask(vocabulary.words());
  for (const auto id : ids) {
    if (mask_us) {
      const auto start = thread_time();
      state.mask(mask);
      mask_us->push_back(microseconds_since(start));
      const bool allowed = (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
      if (allowed != guide_state(state).advance(id))
        throw failure(errc::internal,
                      "the mask of token " + std::to_string(id) + " is wrong behind `" + state.text() + "`");
    }
    std::size_t taken = 0;
    if (vocabulary.bytes(id).empty() || !state.advance(vocabulary.bytes(id), &taken))
      return state.text().size() + taken;
  }
  if (!state.can_end())
    return state.text().size();
  return {};
}

guide_bench_result bench_guides(const guide_bench_options& options, const tokenizer& tokens,
                                const std::shared_ptr<const guide_vocabulary>& vocabulary,
                                const guide_failure& on_failure) {
  const auto text = read_file(options.schemas, files::text);
  guide_bench_result result;
  std::vector<double> compile_us, mask_us;
  for (std::size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto row = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == row.npos)
      continue;
    const auto parsed = json::document::parse(row, options.schemas + ":" + std::to_string(line), errc::bad_request);
    const json::reader reader(parsed);
    const auto name = reader.string("name").value_or(std::to_string(line));
    ++result.schemas;
    guide_source source{.what = guide_source::kind::json_schema,
                        .text = json::minified(reader.at("schema").get()),
                        .any_order = options.any_order,
                        .compact = options.compact};
    std::shared_ptr<const guide> guide;
    const auto start = thread_time();
    try {
      guide = compile_guide(source, vocabulary);
      guide_state(guide).can_end(); // the first state too
    } catch (const failure& f) {
      ++result.refused;
      on_failure(name, std::string("refused: ") + f.what());
      continue;
    }
    compile_us.push_back(microseconds_since(start));
    bool good = true;
    for (const auto& test : reader.at("tests").items()) {
      const bool valid = test.boolean("valid", true);
      std::string document;
      append_python_json(document, test.get().at_key("data").value());
      std::string why;
      bool accepted = false;
      try {
        const auto at = rejected_at(guide_state(guide), *vocabulary, tokens.encode(document, false), &mask_us);
        accepted = !at;
        if (at)
          why = "byte " + std::to_string(*at) + ": " + document.substr(0, *at) + " <> " + document.substr(*at, 40);
      } catch (const failure& f) {
        why = f.what();
      }
      ++(valid        ? accepted ? result.valid_accepted : result.valid_rejected
           : accepted ? result.invalid_accepted
                      : result.invalid_rejected);
      if (accepted != valid) {
        on_failure(name, valid ? "valid document rejected at " + why : "invalid document accepted: " + document);
        good = false;
      }
    }
    result.passed += good;
  }
  result.compile = summary_of(std::move(compile_us));
  result.mask = summary_of(std::move(mask_us));
  return result;
}

} // namespace troupe::guides
