#include "tests/runtime/engine/field_archive.hpp"

#include <doctest/doctest.h>

#include <map>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// Gives every field a value of its own, which is not its default.
class field_filler {
public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void fill(T& x) {
    if constexpr (std::same_as<T, bool>)
      x = !x;
    else
      x = static_cast<T>(++last_);
  }
  template <class T>
  requires std::is_enum_v<T>
  void fill(T& x) { x = static_cast<T>(static_cast<int>(x) == 0 ? 1 : 0); }
  void fill(std::chrono::milliseconds& x) { x = std::chrono::milliseconds(++last_); }
  void fill(std::string& x) { x = "text " + std::to_string(++last_); }
  template <class T, std::size_t N>
  void fill(std::array<T, N>& x) {
    for (auto& each : x)
      fill(each);
  }
  template <class A, class B>
  void fill(std::pair<A, B>& x) {
    fill(x.first), fill(x.second);
  }
  template <class T>
  void fill(std::vector<T>& x) {
    x.assign(2, T());
    for (auto& each : x)
      fill(each);
  }
  template <class T>
  void fill(std::optional<T>& x) {
    fill(x.emplace());
  }
  template <class T>
  void fill(std::shared_ptr<const T>& x) {
    T made{};
    fill(made);
    x = std::make_shared<const T>(std::move(made));
  }
  void fill(sampler_order& x) { make(x, {"top_p", "temperature"}); }
  void fill(dola_layers& x) { make(x, {"3", "5"}); }
  template <list_field T>
  void fill(T& x) {
    auto items = items_of(x);
    fill(items);
    make(x, std::move(items));
  }
  template <has_fields T>
  void fill(T& x) {
    for_each_field(x, [this](const char*, auto& field) { fill(field); });
  }

private:
  int last_ = 20; // above all defaults
};

template <class T>
T filled() {
  T x{};
  field_filler().fill(x);
  return x;
}

/// Names and bytes of the fields.
template <class T>
std::map<std::string, std::string> fields_by_name(const T& x) {
  std::map<std::string, std::string> fields;
  for_each_field(x, [&](const char* name, const auto& field) { CHECK(fields.emplace(name, archived(field)).second); });
  return fields;
}

template <class T>
void check_round_trip() {
  const auto original = filled<T>();
  const auto untouched = fields_by_name(T{}), fields = fields_by_name(original);
  for (const auto& [name, bytes] : fields) {
    CAPTURE(name);
    CHECK(bytes != untouched.at(name));
  }
  const auto bytes = archived(original);
  field_reader from(bytes);
  CHECK(fields_by_name(from.get<T>()) == fields);
  CHECK(from.at_end());
}

/// Whether the fields fill their struct but for padding, so that none is named twice in place of another.
template <class T>
bool in_order() {
  T x{};
  const char* end = reinterpret_cast<const char*>(&x);
  bool ordered = true;
  for_each_field(x, [&](const char*, const auto& field) {
    const auto* at = reinterpret_cast<const char*>(&field);
    ordered = ordered && at >= end && at < end + alignof(std::max_align_t);
    end = at + sizeof(field);
  });
  return ordered && end <= reinterpret_cast<const char*>(&x + 1);
}

} // namespace

TEST_CASE("every field of a request comes out of an archive as it went in") {
  check_round_trip<generation>();
  check_round_trip<sampling_params>();
  check_round_trip<sequence_bias>();
  check_round_trip<steering_choice>();
  check_round_trip<guides::guide_source>();
  check_round_trip<watermarks::options>();
}

TEST_CASE("every field of an event comes out of an archive as it went in") {
  check_round_trip<token_event>();
  check_round_trip<sampled_token>();
  check_round_trip<token_logprob>();
  check_round_trip<done_event>();
  check_round_trip<choice_summary>();
  check_round_trip<error>();
  for (const event& e : {event(filled<token_event>()), event(filled<done_event>()), event(filled<error>())}) {
    const auto bytes = archived(e);
    CHECK(archived(field_reader(bytes).get<event>()) == bytes);
  }
}

TEST_CASE("fields are listed once each, in the order of their declaration") {
  CHECK(in_order<generation>());
  CHECK(in_order<sampling_params>());
  CHECK(in_order<guides::guide_source>());
  CHECK(in_order<watermarks::options>());
  CHECK(in_order<token_event>());
  CHECK(in_order<sampled_token>());
  CHECK(in_order<done_event>());
  CHECK(in_order<choice_summary>());
}

TEST_CASE("a request of defaults comes out of an archive as such") {
  const auto bytes = archived(generation{});
  const auto read = field_reader(bytes).get<generation>();
  CHECK(read.guide == nullptr);
  CHECK(read.sampling.samplers.is_default());
  CHECK(read.sampling.stop.empty());
  CHECK_FALSE(read.sampling.dola);
}

TEST_CASE("lists are checked again where they arrive") {
  CHECK(items_of(dola_layers("high")) == std::vector<std::string>{"high"});
  dola_layers word;
  make(word, {"low"});
  CHECK(word.word() == "low");
  CHECK_THROWS_AS(make(word, {"many"}), failure);
  stop_strings stop;
  CHECK_THROWS_AS(make(stop, {""}), failure);
  sampler_order order;
  CHECK_THROWS_AS(make(order, {"unheard of"}), failure);
}
