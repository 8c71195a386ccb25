// Compiles the guides of one model's requests and keeps those that were used last, because agents ask for the same
// schema again and again. Owns the vocabulary as guides need it, and makes it for the first request. Any thread; each
// compilation may take what `limits` allow, so few should run at once. Slow: not for a thread that others wait for.
#pragma once

#include "runtime/techniques/guides/answer_guide.hpp"

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe::guides {

class guide_cache final : public constraint_compiler {
public:
  struct limits {
    guide_limits guide = {.memory = 64u << 20};
    meter::limits little = {.bytes = 32u << 20, .steps = 10'000'000}; // some ten milliseconds
    std::size_t kept = 64;                                            // guides that no request uses
    std::size_t kept_bytes = 128u << 20;                              // of those, and of what they were compiled from
    std::size_t all_bytes = 320u << 20; // of all guides, beyond which further ones are refused
  };

  /// `ends`: tokens that end an answer. `markers`: special tokens that are text to guides, sorted. `tokens` may be
  /// null:
  /// every guide is refused then.
  guide_cache(std::shared_ptr<const tokenizer> tokens, std::vector<token_id> ends) : guide_cache(tokens, ends, {}) {}
  guide_cache(std::shared_ptr<const tokenizer> tokens, std::vector<token_id> ends, const limits& l,
              std::vector<token_id> markers = {});

  /// `stops`: the request has token ids of its own that end an answer. Throws failure, naming the source's field:
  /// bad_request if the guide is malformed, unsupported or too complex, or the model cannot follow guides; overloaded
  /// if the guides in use take too much memory; cancelled soon after a stop request. `brief`: null if compiling it takes
  /// long.
  std::shared_ptr<const answer_guide> get(const guide_source& source, bool stops, const std::stop_token& stop = {},
                                          bool brief = false);
  std::shared_ptr<const constraint> compile(const constraint_source& source, bool stops, bool brief,
                                            const std::stop_token& stop) override;

  /// Bytes of all guides, in use or kept.
  std::size_t memory() const { return pool_->bytes(); }

private:
  struct entry {
    std::string key;
    std::shared_ptr<const answer_guide> guide;
  };
  std::shared_ptr<const answer_guide> get(const guide_source& source, bool stops, meter& most);
  std::shared_ptr<const answer_guide> made_of(const guide_source& source,
                                              std::shared_ptr<const banned_tokens> banned) const;
  std::shared_ptr<const banned_tokens> banned_of(const std::vector<std::string>& texts);
  void make_room(const std::string& field);

  const std::shared_ptr<const tokenizer> tokens_;
  const std::vector<token_id> ends_, markers_;
  const limits limits_;
  const std::shared_ptr<guide_pool> pool_;

  std::mutex lock_; // of what follows
  std::shared_ptr<const guide_vocabulary> vocabulary_;
  std::list<entry> entries_; // last used first

  static constexpr std::size_t most_banned = 64; // lists of texts
  std::mutex banned_lock_;                       // of what follows
  std::list<std::pair<std::vector<std::string>, std::shared_ptr<const banned_tokens>>> banned_;
};

} // namespace troupe::guides
