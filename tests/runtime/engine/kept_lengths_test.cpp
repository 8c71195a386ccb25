#include "runtime/engine/kept_lengths.hpp"

#include "runtime/scheduling/lengths/length_model.hpp"
#include "runtime/support/error.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace troupe;

namespace {

length_model taught(int answers) {
  length_model model;
  for (int i = 0; i < answers; ++i)
    model.learn({.most = 100}, 40, false, model.predict({.most = 100}));
  return model;
}

} // namespace

TEST_CASE("who has seen most answers is kept, over restarts and in the file") {
  const test::temp_folder folder;
  const auto file = folder.path() / "lengths";
  {
    kept_lengths kept(file);
    CHECK(kept.learned().empty());
    CHECK(kept.write().empty());
    CHECK_FALSE(std::filesystem::exists(file)); // nothing was learned
    kept.keep(taught(0));
    CHECK(kept.learned().empty());
    kept.keep(taught(9));
    kept.keep(taught(3));
    CHECK(kept.learned() == taught(9).saved());
    CHECK(kept.write().empty());
  }
  kept_lengths again(file, [](log_line) { FAIL("there is nothing to say"); });
  CHECK(again.learned() == taught(9).saved());
  again.keep(taught(5)); // which has seen less
  CHECK(again.learned() == taught(9).saved());
}

TEST_CASE("somebody's own file is refused and left alone; a damaged one of ours is told of, and replaced at the end") {
  const test::temp_folder folder;
  const auto file = folder.path() / "lengths", own = folder.path() / "own";
  std::ofstream(own) << "dear diary";
  try {
    kept_lengths kept(own);
    FAIL("it was taken");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    CHECK(f.what_failed().param == "length_model");
  }
  CHECK_THROWS_AS(kept_lengths(folder.path()), failure);
  auto damaged = taught(2).saved();
  damaged.back() ^= 1;
  std::ofstream(file) << damaged;
  std::vector<std::string> told;
  kept_lengths kept(file, [&](log_line line) { told.push_back(line.text); });
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("lengths") != std::string::npos);
  CHECK(kept.learned().empty());
  kept.keep(taught(2));
  CHECK(kept.write().empty());
  CHECK(kept_lengths(file).learned() == taught(2).saved());
}

TEST_CASE("a file that cannot be written is told of") {
  const test::temp_folder folder;
  kept_lengths kept(folder.path() / "no" / "such" / "folder" / "lengths");
  kept.keep(taught(1));
  CHECK(kept.write().find("lengths") != std::string::npos);
}
