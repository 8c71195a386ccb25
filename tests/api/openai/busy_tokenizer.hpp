// A tokeniser for the fake service that stays busy until the test releases it. For tests only.
#pragma once

#include "tests/api/service/fake_service.hpp"

#include <latch>
#include <semaphore>

namespace troupe::test {

/// Texts of at least `from` bytes keep their tokeniser busy until released.
class busy_tokenizer {
public:
  busy_tokenizer(fake_service& of, std::size_t from) {
    of.served->encode = [this, from](std::string_view text, bool) -> std::vector<token_id> {
      if (text.size() >= from) {
        begun_.release();
        released_.wait();
      }
      return {1};
    };
  }
  ~busy_tokenizer() { release(); }
  bool begins() { return begun_.try_acquire_for(patience); }
  void release() {
    if (!std::exchange(done_, true))
      released_.count_down();
  }

private:
  std::counting_semaphore<> begun_{0};
  std::latch released_{1};
  bool done_ = false;
};

inline std::string text_of(std::size_t bytes) { return "{\"prompt\":\"" + std::string(bytes, 'x') + "\"}"; }

} // namespace troupe::test
