#include "runtime/sampling/sequence_need.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("whoever asks for too many sequences reads which parameter asks for them") {
  sampling_params several, best, beams, pair;
  several.n = 5;
  best.n = 2, best.best_of = 5;
  beams.techniques.set(troupe::beams({.width = 5}));
  pair.techniques.set(guided_by(2));
  CHECK_FALSE(too_many_sequences(several, 5));
  const auto told = [](const sampling_params& p, int most) {
    const auto refused = too_many_sequences(p, most).value();
    CHECK(refused.code == errc::bad_request);
    CHECK(refused.message.find("`" + refused.param + "`") == 0);
    return refused.message;
  };
  CHECK(told(several, 4) == "`n` is 5, but at most 4 sequences can run at once");
  CHECK(told(best, 4) == "`best_of` is 5, but at most 4 sequences can run at once");
  CHECK(told(beams, 4) == "`num_beams` is 5, but at most 4 sequences can run at once");
  CHECK(told(pair, 1) == "`guidance_scale` takes 2, but at most 1 sequences can run at once");
}

TEST_CASE("a group that needs too many blocks is told what to lower") {
  sampling_params beams, pair;
  beams.techniques.set(troupe::beams({.width = 4}));
  pair.techniques.set(guided_by(2));
  CHECK(too_many_blocks(beams).param == "num_beams");
  CHECK(too_many_blocks(pair).param == "max_tokens");
}
