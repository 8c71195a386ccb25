// Adapters through the whole engine: what they change and what not, and what is refused.
#include "runtime/techniques/adapters/technique.hpp"
#include "runtime/techniques/model_variants.hpp"
#include "tests/api/embed/small_adapters.hpp"
#include "tests/api/embed/small_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

generation asked_of(std::string name) {
  auto g = ask(std::vector<token_id>(40, 20), 24);
  g.sampling.ignore_eos = true;
  if (!name.empty())
    g.sampling.techniques.set(adapted_by(std::move(name)));
  return g;
}

} // namespace

TEST_CASE("an adapter changes an answer, has a prefix cache of its own, and ends with its name") {
  auto o = small();
  const test::temp_folder folder;
  o.techniques["lora"] = adapters_for(o.model, folder.path(), {"one", "two"});
  const auto e = engine::start(o);
  e.wait_until_ready();
  const auto plain = run(e, asked_of({}));
  REQUIRE(plain.done);
  const auto one = run(e, asked_of("one")), two = run(e, asked_of("two"));
  REQUIRE(one.done);
  REQUIRE(two.done);
  CHECK(one.ids != plain.ids);
  CHECK(two.ids != one.ids);
  CHECK(one.done->cached_tokens == 0);
  CHECK(two.done->cached_tokens == 0);
  const auto again = run(e, asked_of("one"));
  CHECK(again.done->cached_tokens == 32);
  CHECK(again.ids == one.ids);
  CHECK(run(e, asked_of({})).ids == plain.ids);

  const auto all = variants_of(e.model()->techniques);
  REQUIRE(all.size() == 1);
  auto* const adapters = all.front();
  CHECK(adapters->names() == std::vector<std::string>{"one", "two"});
  CHECK(!adapters->changeable());
  adapters->unload("one");
  const auto gone = run(e, asked_of("one"));
  REQUIRE(gone.failed);
  CHECK(gone.failed->code == errc::not_found);
  CHECK(gone.failed->message == "the model `one` does not exist");
  CHECK(run(e, asked_of("two")).ids == two.ids);
  // Another adapter of that name shares nothing with the first, but all with that of the same values.
  adapters->load("one", (folder.path() / "two").string());
  const auto other = run(e, asked_of("one"));
  CHECK(other.ids == two.ids);
  CHECK(other.done->cached_tokens == 32);
}

TEST_CASE("an engine whose clients may load adapters has none at first, and one for each name that it is given") {
  auto o = small();
  const test::temp_folder folder;
  adapters_for(o.model, folder.path(), {"file"});
  o.techniques["lora_endpoints"] = {""};
  const auto e = engine::start(o);
  e.wait_until_ready();
  const auto all = variants_of(e.model()->techniques);
  REQUIRE(all.size() == 1);
  CHECK(all[0]->changeable());
  CHECK(all[0]->names().empty());
  const auto file = (folder.path() / "file").string();
  all[0]->load("mine", file);
  CHECK(variants_with(e.model()->techniques, "mine") == all[0]);
  CHECK(variants_with(e.model()->techniques, "yours") == nullptr);
  CHECK(run(e, asked_of("mine")).ids != run(e, asked_of({})).ids);
  CHECK_THROWS_AS(all[0]->load("mine", file), failure);
  CHECK_THROWS_AS(all[0]->load(e.model()->id, file), failure);
  all[0]->unload("mine");
  CHECK_THROWS_AS(all[0]->unload("mine"), failure);
}
