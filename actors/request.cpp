#include "actors/request.hpp"

#include "actors/faults.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/constraints.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/spawn.hpp"
#include "actors/watch.hpp"
#include "runtime/engine/best_of.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/engine/transcript.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/scheduling/request_ledger.hpp"
#include "runtime/scheduling/routing/route_query.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

double milliseconds(clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

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

  // Whoever looks at it later sees no time pass.
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
    if (sequences_.empty())
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
    if (!may_move_ || ended_ || !first_token_ ||
        scored_ < (request_->sampling.prompt_logprobs >= 0 ? request_->prompt.size() : 0))
      return;
    may_move_ = false;
    self_->send(*engine_, move_wanted{self_handle_, number_, query()});
  }

  void submit() {
    auto a = submission();
    a.again = std::exchange(admitted_, true);
    a.ledger = ledger_;
    a.came = came_;
    a.first_by = first_token_ ? never : submitted_ + limit_of(request_->ttft_timeout);
    a.all_by = submitted_ + limit_of(request_->timeout);
    self_->send(*scheduler_, submit_atom::value, std::make_shared<const admission>(std::move(a)), self_handle_);
    if (paused_)
      self_->send(*scheduler_, request_paused{number_, true});
  }

  // As far as it is now.
  admission submission() const {
    return {.request = number_,
            .asked = request_,
            .resumed = unfinished(),
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
    const auto& params = request_->sampling;
    if (params.best_of > params.n)
      ranking_.emplace(params);
    words_ = model.info.tokenizer;
    const auto candidates = ranking_ ? params.best_of : params.n;
    held_.resize(static_cast<std::size_t>(candidates));
    for (int i = 0; i < candidates; ++i)
      sequences_.emplace_back(static_cast<std::uint32_t>(i), model.info.tokenizer, *request_);
    if (request_->begun)
      replay(*request_->begun);
    if (ended_)
      return;
    if (cancelled_ || (finish_early_ && may_finish()))
      return finish_all(cancelled_ ? finish_reason::cancelled : finish_reason::stop);
    if (params.prompt_logprobs >= 0 && request_->prompt.size() == 1)
      send_scores({});
    if (ended_)
      return;
    await_deadline();
  }

  // -- deadlines ------------------------------------------------------------------------------------------------------

  static constexpr auto never = clock::time_point::max();

  // Of a time that is not limited, to `never`.
  clock::duration limit_of(std::chrono::milliseconds time) const {
    return time.count() > 0 ? clock::duration(time) : never - submitted_;
  }

  // The first token's, or else the last one's. A message delayed for itself would keep the actor until it is due.
  void await_deadline() {
    const auto all_by = submitted_ + limit_of(request_->timeout);
    const auto by = first_token_ ? all_by : std::min(all_by, submitted_ + limit_of(request_->ttft_timeout));
    if (by == never)
      return;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(by - self_->clock().now()).count();
    self_->send(*engine_, deadline_set{ms, self_handle_});
  }

  // What it has is told; of nothing, why.
  void expire() {
    if (ended_)
      return;
    const auto now = self_->clock().now();
    const bool all = now >= submitted_ + limit_of(request_->timeout);
    const bool first = !first_token_ && now >= submitted_ + limit_of(request_->ttft_timeout);
    if (!all && !first)
      return await_deadline();
    if (all && may_finish() && std::ranges::any_of(sequences_, [](const auto& s) { return !s.ids().empty(); }))
      return finish_all(finish_reason::timeout);
    const auto limit = all ? request_->timeout : request_->ttft_timeout;
    fail({errc::timeout,
          std::string("the request ") + (all ? "was not finished" : "had no token") + " within " +
            std::to_string(limit.count()) + " ms",
          all ? "timeout" : "ttft_timeout"});
  }

  // The transcripts for another replica to resume. Empty before the first token, while all n share one prompt.
  std::vector<resumed_sequence> unfinished() const {
    std::vector<resumed_sequence> resumed;
    if (std::ranges::all_of(sequences_, [](auto& s) { return s.ids().empty(); }))
      return resumed;
    for (std::uint32_t i = 0; i < sequences_.size(); ++i)
      if (!sequences_[i].finished())
        resumed.push_back({i, sequences_[i].ids(), sequences_[i].mirostat_mu()});
    return resumed;
  }

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

  /// How far it is.
  std::uint64_t tokens() const {
    std::uint64_t all = scored_ + (embedding_.empty() ? 0 : 1);
    for (const auto& s : sequences_)
      all += s.ids().size();
    return all;
  }

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
    if (started_)
      return;
    started_ = clock::time_point(when);
    cached_tokens_ = static_cast<std::uint32_t>(std::min<std::size_t>(as_size(cached), request_->prompt.size()));
  }

  void append(const sequence_id& id, const sampled_token& token) {
    if (ended_ || id.request != number_ || id.index >= sequences_.size())
      return;
    last_token_ = self_->clock().now();
    if (!first_token_)
      first_token_ = last_token_;
    auto& sequence = sequences_[id.index];
    const bool was_running = !sequence.finished();
    withheld_tokens_ += was_running && token.withheld;
    ledger_->generated(was_running);
    if (auto event = sequence.push(token))
      deliver(id.index, std::move(*event));
    end_trial();
    if (was_running && ranking_)
      rank(id.index, token.logprob);
    if (was_running && sequence.stopped_by_text())
      self_->send(*scheduler_, finish_atom::value, id);
    if (std::all_of(sequences_.begin(), sequences_.end(), [](auto& s) { return s.finished(); }))
      done();
    else
      ask_to_move();
  }

  // Candidates of best_of are answered when all are known.
  void deliver(std::size_t index, token_event e) {
    if (ranking_)
      held_[index].push_back(std::move(e));
    else
      client_.line->send(std::move(e));
  }

  void rank(std::uint32_t index, float logprob) {
    ranking_->add(index, logprob);
    if (sequences_[index].finished())
      ranking_->finish(index);
    for (std::uint32_t i = 0; i < sequences_.size(); ++i)
      if (!sequences_[i].finished() && ranking_->hopeless(i)) {
        sequences_[i].cut(finish_reason::cancelled);
        self_->send(*scheduler_, finish_atom::value, sequence_id{number_, i});
      }
  }

  void count_guesses(const guesses_verified& seen) {
    if (seen.request != number_)
      return;
    const auto right = static_cast<std::uint32_t>(seen.right),
               wrong = static_cast<std::uint32_t>(seen.guesses - seen.right);
    accepted_guesses_ += right;
    rejected_guesses_ += wrong;
    accepted_predicted_ += seen.predicted ? right : 0;
    rejected_predicted_ += seen.predicted ? wrong : 0;
  }

  // After a restart of the replica, they come again from the start.
  void add_scores(const prompt_scores& scores) {
    const auto position = static_cast<std::size_t>(scores.position), next = std::max<std::size_t>(scored_, 1);
    if (ended_ || scores.request != number_ || position > next || position + scores.tokens.size() <= next)
      return;
    send_scores(std::span(scores.tokens).subspan(next - position));
  }

  void send_scores(std::span<const sampled_token> tokens) {
    token_event e;
    if (scored_ == 0)
      e.prompt.push_back({.id = request_->prompt.front()});
    e.prompt.insert(e.prompt.end(), tokens.begin(), tokens.end());
    scored_ += e.prompt.size();
    end_trial();
    if (scored_ < request_->prompt.size() || request_->sampling.max_tokens > 0)
      return client_.line->send(std::move(e));
    auto last = sequences_.front().cut(finish_reason::length);
    last.prompt = std::move(e.prompt);
    client_.line->send(std::move(last));
    done();
  }

  void conclude(std::uint64_t number, const std::vector<hypothesis>& found) {
    if (ended_ || number != number_)
      return;
    first_token_ = last_token_ = self_->clock().now();
    for (std::size_t i = 0; i < sequences_.size() && i < found.size(); ++i) {
      auto& sequence = sequences_[i];
      ledger_->generated(found[i].tokens.size());
      for (const auto& token : found[i].tokens)
        if (auto event = sequence.push(token))
          client_.line->send(std::move(*event));
      sequence.rank(found[i].cumulative_logprob, found[i].score);
    }
    finish_all(finish_reason::length);
  }

  void conclude(const prompt_embedding& found) {
    if (ended_ || found.request != number_)
      return;
    first_token_ = last_token_ = self_->clock().now();
    embedding_ = found.values;
    finish_all(finish_reason::stop);
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
    if (sequences_.empty())
      cancelled_ = true; // takes effect after validation
    else if (!ended_)
      finish_all(finish_reason::cancelled);
  }

  void finish() {
    if (sequences_.empty())
      finish_early_ = true; // takes effect after validation
    else if (!ended_ && may_finish())
      finish_all(finish_reason::stop);
  }

  // What closes it becomes a part of the transcripts, with which the request goes on as after a death.
  void end_reasoning() {
    if (ended_ || !first_token_ || !request_->reasoning || !may_finish() || ranking_)
      return;
    bool any = false;
    for (auto& each : sequences_)
      any = close_reasoning(each) || any;
    if (!any)
      return;
    if (std::ranges::all_of(sequences_, [](const auto& s) { return s.finished(); }))
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

  bool close_reasoning(transcript& of) {
    const auto& marks = *request_->reasoning;
    if (of.finished() || of.ids().empty() || !words_ || !marks.holds(words_->decode(of.ids(), false)))
      return false;
    const auto most = static_cast<std::size_t>(request_->sampling.max_tokens);
    for (const auto id : marks.closing) {
      if (of.finished())
        break;
      sampled_token token;
      token.id = id;
      token.mirostat_mu = of.mirostat_mu();
      if (of.ids().size() + 1 >= most)
        token.finish = sampled_token::finish::length;
      ledger_->generated(1);
      if (auto event = of.push(token))
        deliver(of.summary().index, std::move(*event));
    }
    return true;
  }

  // Whether there is an answer of which a part can be told.
  bool may_finish() const {
    const auto& params = request_->sampling;
    return !params.grouped() && params.max_tokens > 0 && request_->embed == pooling::none;
  }

  // -- between processes ----------------------------------------------------------------------------------------------

  void hand_over() {
    if (ended_ || !(sequences_.empty() || may_finish()) || ranking_)
      return;
    std::vector<begun_sequence> all;
    for (const auto& each : sequences_) {
      using how = begun_sequence::end;
      const bool cut = each.finished() && !each.stopped_by_text();
      const bool full = cut && each.summary().reason == finish_reason::length;
      all.push_back({each.ids(), each.mirostat_mu(), full ? how::length : cut ? how::stop : how::none});
    }
    end_trial();
    done_event e;
    e.begun = std::make_shared<const std::vector<begun_sequence>>(std::move(all));
    end(std::move(e));
  }

  // Tells again what another process has generated, for whoever makes an answer of it.
  void replay(const std::vector<begun_sequence>& all) {
    for (std::size_t i = 0; i < std::min(all.size(), sequences_.size()); ++i)
      for (std::size_t k = 0; k < all[i].emitted.size(); ++k) {
        sampled_token token;
        token.id = all[i].emitted[k];
        token.mirostat_mu = all[i].mirostat_mu;
        if (k + 1 == all[i].emitted.size() && all[i].ended != begun_sequence::end::none)
          token.finish = all[i].ended == begun_sequence::end::length ? sampled_token::finish::length
                                                                     : sampled_token::finish::eos;
        first_token_ = last_token_ = self_->clock().now();
        admitted_ = true; // it had its place
        ledger_->generated(1);
        if (auto event = sequences_[i].push(token)) {
          event->replayed = true;
          client_.line->send(std::move(*event));
        }
      }
    if (std::ranges::all_of(sequences_, [](const auto& s) { return s.finished(); }))
      done();
  }

  // -- the end --------------------------------------------------------------------------------------------------------

  void finish_all(finish_reason why) {
    for (auto& s : sequences_)
      if (!s.finished())
        deliver(s.summary().index, s.cut(why));
    done();
  }

  void done() {
    end_trial();
    const auto now = self_->clock().now();
    done_event e;
    if (ranking_)
      answer_best();
    for (std::size_t i = 0; i < static_cast<std::size_t>(request_->sampling.n); ++i) {
      e.choices.push_back(sequences_[i].summary());
      e.choices.back().index = static_cast<std::uint32_t>(i);
      e.completion_tokens += e.choices.back().tokens;
    }
    e.prompt_tokens = static_cast<std::uint32_t>(request_->prompt.size());
    e.cached_tokens = cached_tokens_;
    e.accepted_guesses = accepted_guesses_;
    e.rejected_guesses = rejected_guesses_;
    e.accepted_predicted = accepted_predicted_;
    e.rejected_predicted = rejected_predicted_;
    e.withheld_tokens = withheld_tokens_;
    const auto started = started_.value_or(first_token_.value_or(now));
    const auto first = std::max(first_token_.value_or(now), started); // it may have been replayed
    e.embedding = std::move(embedding_);
    e.queue_ms = milliseconds(started - submitted_);
    e.prefill_ms = milliseconds(first - started);
    e.decode_ms = milliseconds(last_token_.value_or(first) - first);
    ledger_->close(now);
    e.total_ms = milliseconds(now - submitted_);
    e.spent = ledger_->parts();
    end(std::move(e));
  }

  // Sends what the best candidates have generated, and puts these first. If the request was ended early, some of them
  // may not be finished.
  void answer_best() {
    std::vector<transcript> best;
    const auto take = [&](std::uint32_t candidate, double logprob, double score) {
      for (auto& e : held_[candidate]) {
        e.index = static_cast<std::uint32_t>(best.size());
        client_.line->send(std::move(e));
      }
      held_[candidate].clear();
      best.push_back(std::move(sequences_[candidate]));
      best.back().rank(logprob, score);
    };
    std::vector<bool> taken(sequences_.size());
    for (const auto& r : ranking_->best()) {
      taken[r.candidate] = true;
      take(r.candidate, r.cumulative_logprob, r.score);
    }
    for (std::uint32_t i = 0; i < sequences_.size() && std::ssize(best) < request_->sampling.n; ++i)
      if (!taken[i])
        take(i, 0, 0);
    sequences_ = std::move(best);
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
  std::uint64_t number_ = 0; // of this request in the replica; 0: in none
  std::shared_ptr<const tokenizer> words_;
  std::shared_ptr<request> request_;  // null until validated; does not change once it was submitted
  std::vector<transcript> sequences_; // empty until validated
  bool admitted_ = false;
  bool tried_ = false; // the engine waits for the end of its trial
  bool ran_ = false;   // its constraint was compiled, or rows computed, since it was admitted last
  bool paused_ = false;
  bool cancelled_ = false, finish_early_ = false; // before validation
  bool ended_ = false;
  std::optional<best_of> ranking_;
  std::vector<std::vector<token_event>> held_; // of candidates
  std::uint32_t accepted_guesses_ = 0, rejected_guesses_ = 0, accepted_predicted_ = 0, rejected_predicted_ = 0;
  std::uint32_t withheld_tokens_ = 0;
  std::vector<float> embedding_; // of the prompt, if asked for
  std::size_t scored_ = 0;       // prompt tokens whose log-probabilities were sent
  std::uint32_t cached_tokens_ = 0;
  clock::time_point submitted_;
  std::optional<clock::time_point> started_, first_token_, last_token_;
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
