// The guess worker with a real draft model and real threads.
#include "actors/guess_worker.hpp"
#include "actors/messages/guessing.hpp"
#include "runtime/engine/loading/loader.hpp"
#include "tests/test_data.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <future>

using namespace troupe;

namespace {

/// Collects replies.
guess_reply_actor::behavior_type collect_replies(guess_reply_actor::pointer, std::promise<guess_reply_ptr>* to) {
  return {[to](const guesses_made& its) { to->set_value(its.reply); }};
}

} // namespace

TEST_CASE("a guess worker answers a request with guesses, and ends by an exit message on its own thread") {
  engine_options o;
  o.model = golden("llama-gqa");
  o.techniques["draft"] = {o.model};
  o.compute.device = "cpu";
  o.compute.threads = 1;
  o.kv_cache_bytes = 1 << 20;
  o.max_context = 128;
  o.max_sequences = 2;
  const auto model = load_model(o, {});
  caf::actor_system_config config;
  caf::actor_system system(config);
  const auto worker = spawn_guess_worker(system, replica_of(model));
  sampling_params params;
  params.temperature = 0;
  params.max_tokens = 50;
  std::vector<token_id> transcript{1, 2, 3};
  std::vector<token_id> guessed;
  std::size_t known = 0;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    auto request = std::make_shared<guess_request>();
    request->number = round;
    request->demands.push_back(
      {{1, 0},
       std::make_shared<const sampling_params>(params),
       3,
       known,
       std::vector<token_id>(transcript.begin() + static_cast<std::ptrdiff_t>(known), transcript.end()),
       4});
    std::promise<guess_reply_ptr> replied;
    const auto client = system.spawn(collect_replies, &replied);
    caf::anon_send(worker, guesses_wanted{request, client});
    auto reply = replied.get_future();
    REQUIRE(reply.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
    const auto answer = reply.get();
    CHECK(answer->number == round);
    REQUIRE(answer->answers.size() == 1);
    REQUIRE(answer->answers[0].guesses.size() == 4);
    if (round > 1) // greedy guesses of the same model go on as before
      CHECK(std::equal(guessed.begin() + 2, guessed.end(), answer->answers[0].guesses.begin()));
    guessed = answer->answers[0].guesses;
    known = transcript.size();
    transcript.insert(transcript.end(), guessed.begin(), guessed.begin() + 2);
  }
  caf::scoped_actor self(system);
  self->monitor(worker);
  self->send_exit(worker, caf::exit_reason::user_shutdown);
  self->receive([](const caf::down_msg& down) { CHECK(down.reason == caf::exit_reason::user_shutdown); });
}
