// Engines of small models, and requests to them.
#pragma once

#include "api/embed/engine.hpp"
#include "tests/listener.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

namespace troupe::testing {

inline engine_options small(const std::string& name = "llama-gqa") {
  engine_options o;
  o.model = golden(name);
  o.kv_cache_bytes = 16 << 20;
  o.max_context = 512;
  o.compute.threads = 1;
  return o;
}

inline generation ask(std::vector<token_id> prompt, int max_tokens) {
  generation g;
  g.prompt = std::move(prompt);
  g.sampling.temperature = 0;
  g.sampling.max_tokens = max_tokens;
  return g;
}

inline heard run(const engine& e, generation g) {
  listener l;
  e.submit(std::move(g), l.sink());
  REQUIRE(l.wait());
  return l.result();
}

/// Whether a condition holds within five minutes.
template <class F>
bool soon(F holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Whether it soon has no sequence and uses no block.
inline bool idle(const engine& e) {
  return soon([&] {
    const auto s = e.stats().total;
    return s.scheduler.running + s.scheduler.waiting + s.scheduler.paused == 0 && s.blocks.in_use == 0;
  });
}

/// With room for requests that take long: a test does something while they run, however busy the machine.
inline engine_options roomy() {
  auto o = small();
  o.max_context = 2048;
  return o;
}

/// 8 answers of 2,000 tokens each, for a roomy engine.
inline generation long_request() {
  auto g = ask({0, 54, 51}, 2000);
  g.sampling.ignore_eos = true;
  g.sampling.n = 8;
  return g;
}

} // namespace troupe::testing
