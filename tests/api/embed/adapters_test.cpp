// Adapters through the whole engine: what they change and what not, and what is refused.
#include "runtime/adapters/adapter_library.hpp"
#include "tests/api/embed/small_adapters.hpp"
#include "tests/api/embed/small_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

generation adapted_by(std::string name, int tokens = 24) {
  auto g = ask(std::vector<token_id>(40, 20), tokens);
  g.sampling.ignore_eos = true;
  g.adapter = std::move(name);
  return g;
}

} // namespace

TEST_CASE("an adapter changes an answer, has a prefix cache of its own, and ends with its name") {
  auto o = small();
  const test::temp_folder folder;
  o.lora = adapters_for(o.model, folder.path(), {"one", "two"});
  const auto e = engine::start(o);
  e.wait_until_ready();
  const auto plain = run(e, adapted_by({}));
  REQUIRE(plain.done);
  const auto one = run(e, adapted_by("one")), two = run(e, adapted_by("two"));
  REQUIRE(one.done);
  REQUIRE(two.done);
  CHECK(one.ids != plain.ids);
  CHECK(two.ids != one.ids);
  CHECK(one.done->cached_tokens == 0);
  CHECK(two.done->cached_tokens == 0);
  const auto again = run(e, adapted_by("one"));
  CHECK(again.done->cached_tokens == 32);
  CHECK(again.ids == one.ids);
  CHECK(run(e, adapted_by({})).ids == plain.ids);

  const auto adapters = e.model()->adapters;
  adapters->unload("one");
  const auto gone = run(e, adapted_by("one"));
  REQUIRE(gone.failed);
  CHECK(gone.failed->code == errc::not_found);
  CHECK(gone.failed->message == "the model `one` does not exist");
  CHECK(run(e, adapted_by("two")).ids == two.ids);
  adapters->load("one", folder.path() / "two"); // another adapter of that name shares nothing with the first
  const auto other = run(e, adapted_by("one"));
  CHECK(other.ids == two.ids);
  CHECK(other.done->cached_tokens == 0);
}
