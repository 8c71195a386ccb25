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

/// Whether it soon has no sequence and uses no block.
inline bool idle(const engine& e) {
  for (int i = 0; i < 1000; ++i) {
    const auto s = e.stats().total;
    if (s.scheduler.running + s.scheduler.waiting + s.scheduler.paused == 0 && s.blocks.in_use == 0)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

} // namespace troupe::testing
