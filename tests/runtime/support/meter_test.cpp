#include "runtime/support/meter.hpp"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace troupe;

TEST_CASE("whatever is allocated within a meter is counted, in any container, and given back when it is freed") {
  REQUIRE(meter::counts_allocations());
  meter m({});
  std::map<int, std::string> kept;
  m.run([&] {
    for (int i = 0; i < 100; ++i)
      kept[i] = std::string(1000, 'x');
    const std::vector<std::uint64_t> dropped(10'000);
    CHECK(m.bytes() > 180'000);
  });
  CHECK(m.bytes() > 100'000);
  CHECK(m.bytes() < 130'000);
  CHECK(m.peak_bytes() > 180'000);
  const auto before = m.bytes();
  const std::string outside(100'000, 'x');
  CHECK(m.bytes() == before);
  m.run([&] { kept.clear(); });
  CHECK(m.bytes() == 0);
}

TEST_CASE("what does not fit is not allocated, and nothing after it") {
  meter m({.bytes = 1 << 20});
  CHECK_THROWS_AS(m.run([] { return std::vector<char>(2 << 20); }), meter_spent);
  CHECK(m.spent() == meter::reason::bytes);
  CHECK(m.peak_bytes() < 1 << 20);
  CHECK_THROWS_AS(m.run([] { return std::vector<char>(1000); }), meter_spent);
  CHECK_THROWS_AS(m.run([] { meter::charge(1); }), meter_spent);
  m.run([] { CHECK(std::unique_ptr<char>(new (std::nothrow) char) == nullptr); });
  m.reset();
  CHECK(m.run([] { return std::vector<char>(1000); }).size() == 1000);
}

TEST_CASE("work is bounded, be it said or be it that of allocating") {
  meter m({.steps = 1000});
  int rounds = 0;
  CHECK_THROWS_AS(m.run([&] {
    for (;; ++rounds)
      meter::charge(10);
  }),
                  meter_spent);
  CHECK(m.spent() == meter::reason::steps);
  CHECK(rounds == 100);
  meter n({.steps = 100'000});
  CHECK_THROWS_AS(n.run([] {
    for (;;)
      std::string(100, 'x');
  }),
                  meter_spent);
  CHECK(n.spent() == meter::reason::steps);
}

TEST_CASE("a stop request ends the work soon, and allocating too") {
  for (const bool allocates : {false, true}) {
    std::stop_source stop;
    meter m({}, stop.get_token());
    int rounds = 0;
    CHECK_THROWS_AS(m.run([&] {
      for (;; ++rounds) {
        if (rounds == 10'000)
          stop.request_stop();
        if (allocates)
          std::string(100, 'x');
        else
          meter::charge(1);
      }
    }),
                    meter_spent);
    CHECK(m.spent() == meter::reason::stopped);
    CHECK(rounds < 20'000);
  }
}

TEST_CASE("meters nest: the outer one counts too, and its end is not the inner one's") {
  meter outer({.bytes = 1 << 20, .steps = 100'000}), inner({.bytes = 64 << 10});
  outer.run([&] {
    CHECK_THROWS_AS(inner.run([] { return std::vector<char>(100'000); }), meter_spent);
    CHECK(inner.spent() == meter::reason::bytes);
    CHECK(outer.spent() == meter::reason::none);
    CHECK(meter::current() == &outer);
    std::vector<char> fits(100'000);
  });
  inner.reset();
  CHECK_THROWS_AS(outer.run([&] { inner.run([] { meter::charge(200'000); }); }), meter_spent);
  CHECK(inner.spent() == meter::reason::none);
  CHECK(outer.spent() == meter::reason::steps);
  CHECK(meter::current() == nullptr);
  meter other({});
  CHECK_THROWS_AS(other.run([] { throw std::runtime_error("other"); }), std::runtime_error);
}
