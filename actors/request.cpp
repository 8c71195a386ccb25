#include "actors/request.hpp"

#include "actors/faults.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/constraints.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/spawn.hpp"
#include "actors/watch.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/engine/request_answer.hpp"
#include "runtime/engine/time_limits.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/scheduling/routing/route_query.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <chrono>
#include <utility>

namespace troupe {

namespace {

class request_state {
public:
  static constexpr const char* name = "request";

  request_state(request_actor::pointer self, engine_actor engine, generation_ptr what, client_line_ptr client,
                std::shared_ptr<request_ledger> ledger)
    : self_(self),
      self_handle_(self),
      engine_(self, std::move(engine)),
      what_(std::move(what)),
      client_(std::move(client)),
      ledger_(std::move(ledger)),
      submitted_(ledger_->begun()) {
    self_->set_down_handler([this](caf::down_msg& down) { peer_ended(down); });
    if (const auto& its = client_.line->client())
      client_watch_ = watch(self_, its);
    self_->send(*engine_, admission_wanted{self_handle_});
  }

  // Seen later, it shows no more time.
  ~request_state() { ledger_->close(self_->clock().now()); }

  request_actor::behavior_type make_behavior() {
    return {
      [this](admit_atom, const admit_reply_ptr& reply) { handle_reply(*reply); },
      [this](const chain_arrived& its) {
        if (its.request == number_)
          may_move_ = true, ask_to_move();
      },
      [this](started_atom, std::uint64_t number, std::int32_t cached, caf::timespan when) {
        note_start(number, cached, when);
      },
      [this](const token_sampled& next) { append(next.sequence, next.token); },
      [this](scores_atom, const prompt_scores_ptr& scores) { add_scores(*scores); },
      [this](embedding_atom, const prompt_embedding_ptr& embedding) { conclude(*embedding); },
      [this](ended_atom, std::uint64_t number, const hypotheses_ptr& found) { conclude(number, *found); },
      [this](const guesses_verified& seen) { count_guesses(seen); },
      [this](failed_atom, std::uint64_t number, const error& why) { fail(number, why); },
      [this](const constraint_compiled& its) { follow(its.request, its.made); },
      [this](const finish_wanted& its) { its.hands_over    ? hand_over()
                                           : its.reasoning ? end_reasoning()
                                                           : finish(); },
      [this](pause_atom, bool paused) { pause(paused); },
      [this](cancel_atom) { cancel(); },
      [this](deadline_passed) { expire(); },
    };
  }

  void on_exception(const std::exception_ptr& thrown) noexcept { client_.line->close(thrown); }

private:
  // -- admission ------------------------------------------------------------------------------------------------------

  void handle_reply(const admit_reply& reply) {
    if (ended_)
      return;
    if (!reply.model)
      return fail(reply.why);
    if (!answer_)
      begin(*reply.model, reply.arrival);
    if (ended_)
      return;
    if (reply.asks)
      return describe(*reply.model);
    if (!reply.scheduler)
      return;
    const bool moves = bool(scheduler_);
    if (moves) // where it was; what that still says is of an old number
      self_->send(*scheduler_, request_left{number_});
    came_ = moves && number_ != 0 ? wait_cause::transfer
      : moves || !admitted_       ? wait_cause::queue
                                  : wait_cause::restart;
    may_move_ = false;
    expected_cached_ = reply.expected_cached;
    moves_to_ = reply.moves_to;
    scheduler_ = watch(self_, reply.scheduler);
    number_ = reply.number;
    tried_ = tried_ || reply.tried; // also where it moves meanwhile
    ran_ = constrained() && !request_->follows;
    ledger_->admit(number_, {ran_ ? wait_cause::mask : came_}, self_->clock().now());
    if (ran_)
      self_->send(reply.constraints, compile_atom::value, what_, number_, self_handle_);
    else
      submit();
    if (paused_)
      end_trial();
  }

  void follow(std::uint64_t number, const constraint_ptr& made) {
    if (ended_ || number != number_)
      return;
    request_->follows = made;
    what_ = {};
    submit();
  }

  bool constrained() const { return request_->sampling.techniques.constraint() != nullptr; }

  // For the router, where there are several replicas.
  void describe(const loaded_model& model) {
    prefix_cache_ = model.prefix_cache;
    rope_borders_ = model.replicas.front().limits.rope_borders;
    self_->send(*engine_, admission_wanted{.request = self_handle_, .query = query()});
  }

  route_query_ptr query() const {
    return std::make_shared<const route_query>(query_of(submission(), prefix_cache_, rope_borders_));
  }

  // Its blocks are where it may go on. Before its first token, all is to be computed here; behind its last, nothing.
  void ask_to_move() {
    if (!may_move_ || ended_ || !answer_->first_token() || answer_->awaits_scores())
      return;
    may_move_ = false;
    self_->send(*engine_, move_wanted{self_handle_, number_, query()});
  }

  void submit() {
    auto a = submission();
    a.again = std::exchange(admitted_, true);
    a.ledger = ledger_;
    a.came = came_;
    a.first_by = answer_->first_token() ? time_limits::never : limits_.first_by;
    a.all_by = limits_.all_by;
    self_->send(*scheduler_, submit_atom::value, std::make_shared<const admission>(std::move(a)), self_handle_);
    if (paused_)
      self_->send(*scheduler_, request_paused{number_, true});
  }

  // The request as far as it is now.
  admission submission() const {
    return {.request = number_,
            .asked = request_,
            .resumed = answer_->unfinished(),
            .expected_cached = expected_cached_,
            .moves_to = moves_to_};
  }

  void begin(const loaded_model& model, std::uint64_t arrival) {
    try {
      request_ = std::make_shared<request>(check(*what_, model.allows()));
      request_->arrival = arrival;
      if (request_->sampling.grouped())
        request_->text = text_of_tokens(model.info.tokenizer, *request_);
    } catch (const failure& f) {
      return fail(f.what_failed());
    }
    if (!constrained())
      what_ = {};
    limits_ = {*request_, submitted_};
    answer_.emplace(request_, model.info.tokenizer, ledger_,
                    [this](token_event e) { client_.line->send(std::move(e)); });
    if (request_->begun)
      answer_->replay(*request_->begun, self_->clock().now());
    admitted_ = answer_->has_tokens(); // elsewhere, where it had its place
    if (!answer_->complete() && (cancelled_ || (finish_early_ && answer_->may_finish())))
      finish_all(cancelled_ ? finish_reason::cancelled : finish_reason::stop);
    else if (answer_->complete())
      done();
    else
      await_deadline();
  }

  // -- deadlines ------------------------------------------------------------------------------------------------------

  // The first token's, or else the last one's. A message delayed for itself would keep the actor until it is due.
  void await_deadline() {
    const auto by = limits_.next(answer_->first_token().has_value());
    if (by == time_limits::never)
      return;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(by - self_->clock().now()).count();
    self_->send(*engine_, deadline_set{ms, self_handle_});
  }

  // What it has is told; of nothing, why.
  void expire() {
    if (ended_)
      return;
    const auto now = self_->clock().now();
    const bool whole = now >= limits_.all_by;
    if (!whole && (answer_->first_token() || now < limits_.first_by))
      return await_deadline();
    if (whole && answer_->may_finish() && answer_->has_tokens())
      return finish_all(finish_reason::timeout);
    fail(out_of_time(*request_, whole));
  }

  // -- other actors' ends ---------------------------------------------------------------------------------------------

  void peer_ended(const caf::down_msg& down) {
    const auto& peer = down.source;
    if (engine_.is(peer)) {
      const auto its = fault_of(down.reason, self_->system());
      fail(
        {errc::unavailable, its.at_work ? "the engine has failed: " + its.why.message : "the engine has stopped", {}});
    } else if (scheduler_.is(peer)) {
      scheduler_ = {};
      ledger_->admit(0, {wait_cause::restart}, self_->clock().now());
      number_ = 0; // the next group samples again what the old one may still send
      may_move_ = tried_ = false;
      self_->send(*engine_, admission_wanted{.request = self_handle_, .tokens = tokens(), .ran = ran_});
    } else if (client_watch_.is(peer)) {
      cancel();
    }
  }

  std::uint64_t tokens() const { return answer_ ? answer_->tokens() : 0; }

  // Behind its next token; or at once where there will be none for a while.
  void end_trial() {
    if (std::exchange(tried_, false))
      self_->send(*engine_, trial_ended{self_handle_, tokens()});
  }

  // -- running --------------------------------------------------------------------------------------------------------

  void note_start(std::uint64_t number, std::int32_t cached, caf::timespan when) {
    if (number != number_)
      return;
    ran_ = true;
    answer_->started(request_ledger::time_point(when), cached);
  }

  void append(const sequence_id& id, const sampled_token& token) {
    if (ended_ || id.request != number_ || id.index >= answer_->size())
      return;
    const auto stopped = answer_->append(id.index, token, self_->clock().now());
    end_trial();
    for (const auto index : stopped)
      self_->send(*scheduler_, finish_atom::value, sequence_id{number_, index});
    if (answer_->complete())
      done();
    else
      ask_to_move();
  }

  void count_guesses(const guesses_verified& seen) {
    if (seen.request == number_)
      answer_->count_guesses(static_cast<std::uint32_t>(seen.right),
                             static_cast<std::uint32_t>(seen.guesses - seen.right), seen.predicted);
  }

  // After a restart of the replica, they come again from the start.
  void add_scores(const prompt_scores& scores) {
    if (ended_ || scores.request != number_ ||
        !answer_->add_scores(static_cast<std::size_t>(scores.position), scores.tokens))
      return;
    end_trial();
    if (answer_->complete())
      done();
  }

  void conclude(std::uint64_t number, const std::vector<hypothesis>& found) {
    if (ended_ || number != number_)
      return;
    answer_->conclude(found, self_->clock().now());
    done();
  }

  void conclude(const prompt_embedding& found) {
    if (ended_ || found.request != number_)
      return;
    answer_->conclude(found.values, self_->clock().now());
    done();
  }

  void pause(bool paused) {
    paused_ = paused;
    if (paused)
      end_trial();
    if (scheduler_)
      self_->send(*scheduler_, request_paused{number_, paused});
  }

  void fail(std::uint64_t number, const error& why) {
    if (number == number_)
      fail(why);
  }

  void cancel() {
    if (!answer_)
      cancelled_ = true; // takes effect after validation
    else if (!ended_)
      finish_all(finish_reason::cancelled);
  }

  void finish() {
    if (!answer_)
      finish_early_ = true; // takes effect after validation
    else if (!ended_ && answer_->may_finish())
      finish_all(finish_reason::stop);
  }

  // What closes it becomes a part of the transcripts, with which the request goes on as after a death.
  void end_reasoning() {
    if (ended_ || !answer_ || !answer_->end_reasoning())
      return;
    if (answer_->complete())
      return done();
    if (!scheduler_)
      return; // it is asked for already
    self_->send(*scheduler_, request_left{number_});
    number_ = 0;
    may_move_ = false;
    ledger_->admit(0, {wait_cause::queue}, self_->clock().now());
    end_trial();
    self_->send(*engine_, admission_wanted{.request = self_handle_, .tokens = tokens()});
  }

  // Ends here for another process, which goes on with it.
  void hand_over() {
    if (ended_ || (answer_ && !answer_->may_be_handed_over()))
      return;
    end_trial();
    done_event e;
    e.begun = std::make_shared<const std::vector<begun_sequence>>(answer_ ? answer_->begun()
                                                                          : std::vector<begun_sequence>());
    end(std::move(e));
  }

  // -- the end --------------------------------------------------------------------------------------------------------

  void finish_all(finish_reason why) {
    answer_->finish(why);
    done();
  }

  void done() {
    end_trial();
    end(answer_->close(submitted_, self_->clock().now()));
  }

  void fail(error why) {
    if (!ended_)
      end(std::move(why));
  }

  void end(event last) {
    ended_ = true;
    ledger_->close(self_->clock().now());
    client_.line->send(std::move(last));
    self_->quit();
  }

  // Closes the line with the state: spawn_request may hold the line for longer, and the constructor may throw.
  struct client {
    client_line_ptr line;
    explicit client(client_line_ptr l) : line(std::move(l)) {}
    client(const client&) = delete;
    client& operator=(const client&) = delete;
    ~client() { line->close(); }
  };

  request_actor::pointer self_;
  // Keeps the actor alive while engine and replica die and no one else holds it: its client still waits.
  request_actor self_handle_;
  watch<engine_actor> engine_;
  generation_ptr what_; // until it is validated and its constraint compiled
  client client_;
  watch<client_actor> client_watch_;
  const std::shared_ptr<request_ledger> ledger_; // never null
  wait_cause came_ = wait_cause::queue;          // why it waits in the queue of its scheduler
  watch<scheduler_actor> scheduler_;             // null between two replicas
  std::int32_t expected_cached_ = 0;             // tokens of its prompt, there
  int moves_to_ = -1;                            // the replica that its blocks are sent to
  bool may_move_ = false;                        // they are there
  bool prefix_cache_ = true;                     // of the model, for the router
  std::vector<std::int32_t> rope_borders_;
  std::uint64_t number_ = 0;             // of this request in the replica; 0: in none
  std::shared_ptr<request> request_;     // null until validated; does not change once it was submitted
  std::optional<request_answer> answer_; // from then on
  bool admitted_ = false;
  bool tried_ = false; // the engine waits for the end of its trial
  bool ran_ = false;   // its constraint was compiled, or rows computed, since it was admitted last
  bool paused_ = false;
  bool cancelled_ = false, finish_early_ = false; // before validation
  bool ended_ = false;
  request_ledger::time_point submitted_;
  time_limits limits_;
};

} // namespace

request_actor spawn_request(caf::actor_system& system, engine_actor engine, generation_ptr what, client_line&& client,
                            std::shared_ptr<request_ledger> ledger) {
  const auto line = std::make_shared<client_line>(std::move(client));
  try {
    if (!ledger)
      ledger = std::make_shared<request_ledger>(system.clock().now());
    return spawn_state<request_actor, request_state>(system, std::move(engine), std::move(what), line,
                                                     std::move(ledger));
  } catch (...) {
    line->close(std::current_exception());
    throw;
  }
}

} // namespace troupe
