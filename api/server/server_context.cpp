#include "api/server/server_context.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>
#include <random>

#include <malloc.h>

namespace troupe {

namespace {

/// Delay before free memory is returned to the system, repeated while requests run.
constexpr auto trim_interval = std::chrono::seconds(3);
/// Until the model is loaded, of which there are no figures.
constexpr auto loading_pause = std::chrono::milliseconds(500);

/// Connections that watch the engine's steps: each costs the engine and memory.
constexpr int most_watching = 32;
constexpr std::size_t most_watching_of_one = 8;

std::string random_prefix() {
  char text[16];
  return std::string(text, static_cast<std::size_t>(std::snprintf(text, sizeof text, "%08x-", std::random_device()())));
}

key_ring::listener tell_of_keys(std::shared_ptr<server_log> log) {
  return [log](std::size_t keys, const std::string& why_not) {
    if (why_not.empty())
      log->write(log_level::info, "keys", {{"count", std::uint64_t(keys)}});
    else
      log->write(log_level::error, "keys", {{"why", why_not}, {"kept", std::uint64_t(keys)}});
  };
}

} // namespace

server_context::server_context(service& engine, server_options given)
  : engine(engine),
    options(std::move(given)),
    log(options.log ? options.log : server_log::on_stream(std::clog, log_level::off, log_format::text)),
    models(engine, options),
    live(options),
    counted(engine, options.figures_interval),
    keys(options.api_keys, options.key_file, tell_of_keys(log)),
    quotas(keys.is_open() ? "one address" : "one API key", options.max_requests_per_key, options.engine_room),
    watching(keys.is_open() ? "one address" : "one API key", most_watching_of_one, 0, "connections that watch"),
    bodies(std::max(options.max_body_memory, options.max_body_bytes),
           std::max(options.max_body_memory / 2, options.max_body_bytes)),
    answers(options.max_answer_memory),
    responses(options.max_stored_responses, options.max_response_memory),
    streams(options.max_resume_memory, options.max_unread_streams),
    id_prefix_(random_prefix()),
    connections_(options.max_connections),
    handshakes_(std::max<std::size_t>(1, options.max_connections / 4)),
    io(options.threads),
    acceptor(asio::make_strand(io)),
    grace(acceptor.get_executor()),
    brief(options.workers, options.max_waiting),
    lengthy(options.workers / 2, options.max_waiting, true),
    arduous(options.workers / 2, options.max_waiting, true),
    reports(1, options.max_waiting),
    trim_timer_(acceptor.get_executor()),
    figures_timer_(acceptor.get_executor()) {}

void server_context::hold_rows(const std::string& client, generation& of) {
  auto& used = of.sampling.techniques;
  const auto holds = std::ranges::find_if(used, [](const auto& use) { return use->bytes() > 0; });
  if (holds == used.end())
    return;
  const auto held = std::make_shared<byte_budget::share>(bodies, client);
  if (!held->grow_to(used.bytes()))
    throw failure(errc::overloaded,
                  "what other requests hold leaves too little of the " + std::to_string(bodies.most()) +
                    " bytes for `" + std::string((*holds)->of().name) + "` (--max-body-memory)",
                  std::string((*holds)->of().name));
  used.keep(held);
}

output_filter server_context::follow_policy(const std::string& key, const std::string& client,
                                            const served_model& model, generation& to) {
  hold_rows(client, to);
  if (options.isolate_keys) // by a key's name, which stays where its number may change
    to.cache_salt = (key.empty() ? client : "key " + key) + '\n' + to.cache_salt;
  const auto now = live.get();
  bound_priority(now->policy.of(key), to);
  if (now->policy.is_empty())
    return {};
  const auto* form = to.sampling.techniques.constraint();
  const bool json = form && form->is_json();
  try {
    apply_policy(now->policy.of(key), model, to);
  } catch (const failure&) {
    counted.refused_by_policy();
    throw;
  }
  auto texts = now->banned.of(key);
  return texts ? output_filter(std::move(texts), json, counted.counter_of_filtered()) : output_filter();
}

void server_context::follow_policy(const std::string& key, const std::string& client, const served_model& model,
                                   generation_job& job) {
  for (auto& one : job.prompts)
    job.writer->withhold(follow_policy(key, client, model, one)); // the same for all of them
}

std::shared_ptr<const void> server_context::acquire_quota(const std::string& key, const std::string& client,
                                                          std::size_t sequences) {
  const auto now = live.get();
  if (now->policy.is_empty())
    return quotas.acquire(client, sequences);
  const auto rules = now->policy.of(key);
  if (rules.tokens_per_minute)
    rates->check(client, static_cast<std::uint64_t>(*rules.tokens_per_minute), std::chrono::steady_clock::now());
  return quotas.acquire(client, sequences, rules.max_requests);
}

std::string server_context::client_of(const key_ring::owner& caller, const byte_stream& bytes) const {
  return keys.is_open() ? bytes.peer() : "key " + std::to_string(caller.number);
}

std::shared_ptr<const void> server_context::place_to_watch(const std::string& client) {
  auto of_client = watching.acquire(client, 1);
  const auto place = std::shared_ptr<const void>(&watchers, [this, of_client](const void*) { --watchers; });
  if (++watchers > most_watching)
    throw failure(errc::overloaded, "at most " + std::to_string(most_watching) + " connections may watch");
  return place;
}

std::shared_ptr<const successor> server_context::next() const {
  const std::lock_guard lock(mutex_);
  return next_;
}

void server_context::set_next(successor who) {
  const std::lock_guard lock(mutex_);
  next_ = std::make_shared<const successor>(std::move(who));
}

void server_context::trim_memory_later() {
  if (will_trim_.exchange(true))
    return;
  try {
    asio::co_spawn(trim_timer_.get_executor(), trim_memory(), asio::detached);
  } catch (const std::bad_alloc&) { // another time
    will_trim_ = false;
  }
}

asio::awaitable<void> server_context::wait_until_idle() {
  boost::system::error_code ec;
  do {
    if (draining)
      co_return;
    trim_timer_.expires_after(trim_interval);
    co_await trim_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  } while (counted.in_flight() > 0 || bodies.taken() > 0);
}

// What a co_await gives has a name here: GCC 12 destroys some that have none twice.
asio::awaitable<void> server_context::trim_memory() {
  const std::string nobody;
  const auto trim = [] { ::malloc_trim(0); };
  try {
    co_await wait_until_idle();
  } catch (const std::bad_alloc&) {
    // It is tried now.
  }
  will_trim_ = false;
  // Load peaks leave hundreds of megabytes in the allocator, which returns little on its own.
  if (!draining)
    co_await reports.run(nobody, trim);
}

asio::awaitable<void> server_context::keep_figures() {
  const std::string nobody;
  const auto keep = [this] { return counted.keep_figures(); };
  boost::system::error_code ec;
  while (!draining) {
    bool kept = false;
    try {
      kept = co_await reports.run(nobody, keep);
    } catch (const std::exception&) {
      // A gap in the figures.
    }
    if (draining) // stop_timers() was called meanwhile
      co_return;
    figures_timer_.expires_after(kept ? options.figures_interval : std::min(options.figures_interval, loading_pause));
    co_await figures_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

void server_context::stop_timers() {
  trim_timer_.cancel();
  figures_timer_.cancel();
}

std::string server_context::next_request_id() { return id_prefix_ + std::to_string(++last_id_); }

connection_table::refusal server_context::make_room_for(const std::string& address) {
  std::shared_ptr<session> gives_way;
  const std::lock_guard lock(mutex_);
  const auto verdict = connections_.judge(address);
  if (verdict.gives_way)
    gives_way = sessions_.at(static_cast<const session*>(verdict.gives_way)).of.lock();
  if (gives_way) {
    gives_way->give_way();
    connections_.set_idle(gives_way.get(), false); // for each newcomer another one
  }
  return verdict.why;
}

void server_context::add_session(const std::shared_ptr<session>& one, const std::string& address) {
  const std::lock_guard lock(mutex_);
  const bool late = draining && !replaced;
  sessions_[one.get()] = {one, late};
  late_sessions_ += late;
  connections_.open(one.get(), address);
}

std::shared_ptr<const void> server_context::begin_handshake(const session* one, const std::string& address) {
  std::shared_ptr<session> gives_way;
  {
    const std::lock_guard lock(mutex_);
    if (const auto* found = handshakes_.crowded_out())
      gives_way = sessions_.at(static_cast<const session*>(found)).of.lock();
    if (gives_way) {
      handshakes_.close(gives_way.get());
      gives_way->abort();
    }
    handshakes_.open(one, address);
    handshakes_.set_idle(one, true);
  }
  return std::shared_ptr<const void>(one, [this](const void* which) { // which is called, too, where there is no memory
    const std::lock_guard ended(mutex_);
    handshakes_.close(which);
  });
}

void server_context::set_idle(const session* one, bool idle) {
  const std::lock_guard lock(mutex_);
  connections_.set_idle(one, idle);
}

void server_context::remove_session(const session* one) {
  const std::lock_guard lock(mutex_);
  connections_.close(one);
  const auto found = sessions_.find(one);
  if (found == sessions_.end())
    return;
  late_sessions_ -= found->second.late;
  sessions_.erase(found);
  if (draining && sessions_.size() == late_sessions_)
    try {
      asio::post(grace.get_executor(), [this] { end_drain(); });
    } catch (const std::bad_alloc&) {
      // The grace ends it.
    }
}

void server_context::end_drain() {
  boost::system::error_code ec;
  acceptor.close(ec);
  if (!path.empty())
    ::unlink(path.c_str());
  grace.cancel();
  for (const auto& late : sessions())
    late->abort();
}

std::vector<std::shared_ptr<session>> server_context::sessions() const {
  std::vector<std::shared_ptr<session>> result;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, one] : sessions_)
    if (auto alive = one.of.lock())
      result.push_back(std::move(alive));
  return result;
}

std::size_t server_context::session_count() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

} // namespace troupe
