#include "api/http/key_ring.hpp"
#include "runtime/support/error.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

#include <filesystem>

using namespace troupe;

namespace {

std::string whose(key_ring& ring, const std::string& key, key_ring::clock::time_point now = key_ring::clock::now()) {
  const auto found = ring.find("Bearer " + key, now);
  return found ? found->name : "nobody";
}

std::string refusal(const std::filesystem::path& file, const std::string& text) {
  test::write(file, text);
  try {
    read_keys(file);
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("Keys have owners: by their order, or by their name in a file") {
  key_ring open({}, {});
  CHECK(open.is_open());
  CHECK(open.find("")->number == 0);
  const test::temp_folder folder;
  const auto file = folder.path() / "keys";
  test::write(file, "# who may\n\nalice=a1\r\n bob = b=1 \nalice=a2\n");
  key_ring ring({"first", "second"}, file);
  CHECK_FALSE(ring.is_open());
  CHECK(whose(ring, "first") == "key-1");
  CHECK(whose(ring, "second") == "key-2");
  CHECK(whose(ring, "b=1") == "bob");
  CHECK(ring.find("bearer  a1")->number == ring.find("Bearer a2")->number);
  CHECK(ring.find("Bearer a1")->number != ring.find("Bearer b=1")->number);
  for (const auto* none : {"", "a", "a11", "# who may", "alice", "alice=a1"})
    CHECK(whose(ring, none) == "nobody");
  CHECK_FALSE(ring.find("a1"));
  test::write(file, "");
  CHECK_FALSE(key_ring({}, file).is_open()); // nobody is let in
}

TEST_CASE("A file of keys is read again when it changes, and one that is wrong leaves the old keys") {
  const test::temp_folder folder;
  const auto file = folder.path() / "keys";
  test::write(file, "alice=a1\nbob=b1\n");
  std::vector<std::string> told;
  key_ring ring({}, file,
                [&](std::size_t keys, const std::string& why) { told.push_back(std::to_string(keys) + " " + why); });
  auto now = key_ring::clock::now();
  const auto later = [&] { return now += std::chrono::seconds(2); };
  const auto alice = ring.find("Bearer a1", now)->number;
  test::write(file, "carol=c1\nalice=a22\n");
  CHECK(whose(ring, "c1", now) == "nobody"); // it was looked at less than a second ago
  CHECK(whose(ring, "c1", later()) == "carol");
  CHECK(whose(ring, "a1", now) == "nobody");
  CHECK(whose(ring, "b1", now) == "nobody");
  CHECK(ring.find("Bearer a22", now)->number == alice);
  test::write(file, "carol=c1\nalice\n");
  CHECK(whose(ring, "c1", later()) == "carol");
  CHECK(whose(ring, "a22", later()) == "alice");
  std::filesystem::remove(file);
  CHECK(whose(ring, "c1", later()) == "carol");
  CHECK(whose(ring, "c1", later()) == "carol");
  test::write(file, "dave=d1\n");
  CHECK(whose(ring, "d1", later()) == "dave");
  REQUIRE(told.size() == 4);
  CHECK(told[0] == "2 ");
  CHECK(told[1] == "2 " + file.string() + ": line 2: a line must be `name=key`");
  CHECK(told[2].find("no such file") != std::string::npos);
  CHECK(told[3] == "1 ");
}

TEST_CASE("What is wrong in a file of keys is named by its line, and no key is told") {
  const test::temp_folder folder;
  const auto file = folder.path() / "keys";
  const auto line = [&](int number) { return file.string() + ": line " + std::to_string(number) + ": "; };
  CHECK(refusal(file, "secret\n") == line(1) + "a line must be `name=key`");
  CHECK(refusal(file, "\na b=secret") == line(2) + "a name must have 1 to 64 letters, digits and any of -_.@");
  CHECK(refusal(file, "a=two words") == line(1) + "a key must be visible ASCII characters without spaces");
  CHECK(refusal(file, "a=") == line(1) + "a key must be visible ASCII characters without spaces");
  CHECK(refusal(file, "a=secret\nb=secret\n") == line(2) + "this is also the key of a");
  CHECK_THROWS_AS(read_keys(folder.path() / "none"), failure);
  test::write(file, "secret\n");
  CHECK(read_key(file) == "secret");
  test::write(file, "two\nkeys\n");
  CHECK_THROWS_AS(read_key(file), failure);
}

TEST_CASE("A ring takes other keys, or none of them") {
  const test::temp_folder folder;
  const auto file = folder.path() / "keys";
  test::write(file, "alice=a1\n");
  key_ring ring({"first"}, {});
  ring.replace({}, file);
  CHECK(whose(ring, "first") == "nobody");
  CHECK(whose(ring, "a1") == "alice");
  CHECK_THROWS_AS(ring.replace({"second"}, folder.path() / "none"), failure);
  CHECK_THROWS_AS(ring.replace({"second"}, {}, [](bool open) { throw failure(errc::bad_request, open ? "open" : ""); }),
                  failure);
  CHECK(whose(ring, "second") == "nobody");
  CHECK(whose(ring, "a1") == "alice");
  ring.replace({}, {});
  CHECK(ring.is_open());
}
