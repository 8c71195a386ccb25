// Guesses the next tokens of sequences with a second, smaller model, or with the model's own layers of multi-token
// prediction (mtp_runner.hpp), whose rows also read the model's hidden states. Owns a runner and a sampler on a device,
// and the KV blocks. A transcript's new tokens are computed behind those that still hold, wrong guesses are overwritten
// in place, and when blocks run out, the sequence that was not served for longest loses its own. Guesses are drawn as
// the target draws its tokens, with its parameters and random numbers, so that two models which agree draw the same.
// It also names the likeliest other tokens, and ends a line whose further guesses would not be worth a pass.
//
// Multi-token prediction sees a transcript from the first token on whose predecessor's state it was given. Rows of
// guesses read states that it made itself; those that prove right are computed again with the model's.
//
// Waits for its device; made, used and destroyed by one thread.
#pragma once

#include "runtime/execution/step_runner.hpp"
#include "runtime/techniques/guesser.hpp"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace troupe {

class device;
struct mtp_spec; // mtp_runner.hpp

struct draft_spec {
  runner_spec runner;   // sizes.rows: of one pass, which also bounds what a request waits for a prompt
  sampler_spec sampler; // the target's EOS ids; the vocabulary of the draft
  int target_vocab = 0; // guesses outside it are wrong, and not made
  std::shared_ptr<const mtp_spec> mtp = {}; // null: a model of its own
};

class draft_model final : public guess_model {
public:
  draft_model(const device& on, draft_spec spec);
  ~draft_model() override;

  /// Computes what is new, at most one pass of it, and draws guesses for sequences that are then complete. Sequences
  /// for which there is no room get none. Ends before the next pass once the request has enough. Throws device_error.
  guess_reply serve(const guess_request& request) override;

  const draft_spec& spec() const { return spec_; }
  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()); }

private:
  struct sequence {
    std::vector<token_id> text;     // its transcript
    std::size_t base = 0;           // the first token of it that is computed
    std::vector<token_id> computed; // tokens whose K/V is in the blocks: of the transcript, then of guesses
    std::size_t valid = 0;          // of `computed`, that equal the transcript
    std::size_t first_state = 0;    // position of the first of `states`
    std::vector<float> states;      // [..., hidden] of the model, for rows to be computed; multi-token prediction
    std::vector<std::int32_t> blocks;
    std::uint64_t served = 0; // the last request that served it
    request_ptr asked;        // its prompt and the target's parameters, as far as they concern guesses
    bool foreign = false;     // has tokens that this model does not know
    bool longer = false;      // than the border of LongRoPE: so `computed` is rotated
  };

  /// A sequence of a request, while it is served.
  struct job {
    sequence_id id;
    sequence* of = nullptr;
    guess_answer* answer = nullptr;
    const guess_demand* asked = nullptr;
    int wanted = 0;                // guesses behind each other
    std::size_t rows = 0;          // in the next pass
    std::vector<float> state = {}; // [hidden], of its own making, behind the last row; multi-token prediction
    int guesses = 0;               // drawn so far
    std::int32_t last = -1;        // of them, in the answer
    float chance = 1;              // that all of them are right
  };

  void warm_up();
  guess_reply answer(const guess_request& request);
  void take(const guess_demand& demand, sequence& s) const;
  sampling_params params_of(const sampling_params& target, int others) const;
  bool take_states(const guess_demand& demand, sequence& s) const;
  void add_states(const job& j, std::vector<float>& rows) const;
  void drop_blocks(sequence& s);
  bool reserve(sequence& s, std::size_t tokens);
  void begin_pass(std::vector<job>& jobs);
  step_result run(std::span<job> jobs);
  step_result wait_for(const step_tokens& tokens);
  void add_guesses(std::vector<job>& jobs, const step_result& drawn);
  void add_guess(job& j, const sampled_token& token);

  draft_spec spec_;
  std::size_t border_; // of LongRoPE (rope_border)
  // Samples that a device has reported. Its sampler may call until it is destroyed.
  std::mutex mutex_;
  std::condition_variable reported_changed_;
  int reported_ = 0;
  std::unique_ptr<step_runner> runner_;
  std::unique_ptr<step_sampler> sampler_;
  std::map<sequence_id, sequence> sequences_;
  std::vector<sequence_id> ended_; // not reported to the sampler yet
  std::vector<std::int32_t> free_;
  std::uint64_t requests_ = 0, steps_ = 0;
};

} // namespace troupe
