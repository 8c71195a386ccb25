#include "api/cli/replacement.hpp"

#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr std::int64_t spoken = 1; // version of the conversation
constexpr std::int64_t largest = INT64_MAX;

struct sentence {
  json::document document;
  field_reader fields;
  explicit sentence(std::string_view text)
    : document(json::document::parse(text, "what came by the control socket", errc::unavailable)),
      fields(document.root()) {}
};

/// What the other process says next. Throws failure with its reason, or if it is gone.
control_peer::message hear(control_peer& peer, std::string_view kind) {
  auto heard = peer.receive();
  if (!heard)
    throw failure(errc::unavailable, "the other process has ended the conversation");
  const sentence its(heard->text);
  if (const auto why = its.fields.string("error"))
    throw failure(errc::unavailable, "the running server refuses: " + to_utf8(*why));
  if (its.fields.string("what") != kind)
    throw failure(errc::unavailable, "the other process says something else than was expected");
  return std::move(*heard);
}

} // namespace

background::background() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw failure(errc::unavailable, "no pipe can be made");
  const descriptor heard(ends[0]);
  told_ = descriptor(ends[1]);
  const auto child = ::fork();
  if (child < 0)
    throw failure(errc::unavailable, "no process can be made");
  if (child == 0) {
    ::setsid();
    return;
  }
  told_ = descriptor();
  char once = 0;
  if (::read(heard.get(), &once, 1) == 1)
    ::_exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::_exit(WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
}

void background::serves() {
  const char once = 1;
  [[maybe_unused]] const auto written = ::write(told_.get(), &once, 1);
  told_ = descriptor();
}

predecessor::predecessor(const std::string& control_path) : peer_(control_peer::connect(control_path)) {
  peer_->send(json_object()
                .text("what", "replace")
                .number("protocol", spoken)
                .text("version", TROUPE_VERSION)
                .number("pid", static_cast<std::int64_t>(::getpid()))
                .str());
  auto first = hear(*peer_, "socket");
  const sentence its(first.text);
  host_ = its.fields.string("host").value_or("");
  version_ = to_utf8(its.fields.string("version").value_or(""));
  listening_ = std::move(first.file);
  control_ = hear(*peer_, "control").file;
  if (!listening_ || !control_)
    throw failure(errc::unavailable, "the running server gave no socket away");
}

predecessor::~predecessor() { peer_->shut_down(); }

void predecessor::give_socket(server_options& to) {
  to.host = host_;
  to.socket = ::fcntl(listening_.get(), F_DUPFD_CLOEXEC, 3);
  to.accept_later = true;
}

void predecessor::take_over(server& next, std::function<void(bool)> ended) {
  next.accept();
  peer_->send(next.describe_self());
  reader_ = std::jthread([this, &next, ended = std::move(ended)] {
    bool well = false;
    while (auto given = peer_->receive()) {
      if (const sentence its(given->text); its.fields.string("what") == "end")
        well = true;
      else if (given->file)
        next.take(given->text, std::move(given->file));
    }
    ended(well);
  });
}

successors::successors(std::unique_ptr<control_listener> listener, self who)
  : listener_(std::move(listener)), who_(std::move(who)) {
  listening_ = std::jthread([this] { listen(); });
}

successors::~successors() {
  listener_->shut_down();
  listening_ = {};
  {
    const std::lock_guard lock(mutex_);
    if (peer_ && taken_over_)
      peer_->send(json_object().text("what", "end").str());
    if (peer_)
      peer_->shut_down();
  }
  talking_ = {};
}

void successors::listen() {
  while (auto accepted = listener_->accept()) {
    const std::shared_ptr<control_peer> peer = std::move(accepted);
    {
      const std::lock_guard lock(mutex_);
      if (peer_) {
        peer->send(json_object().text("error", "another server is taking its place already").str());
        continue;
      }
      peer_ = peer;
    }
    talking_ = std::jthread([this, peer] { serve(peer); });
  }
}

/// Returns the process id of a peer that may take over.
std::int64_t successors::agree(control_peer& peer) {
  const auto asked = hear(peer, "replace");
  const sentence its(asked.text);
  const auto version = its.fields.integer("protocol", 0, largest).value_or(0);
  if (version != spoken)
    throw failure(errc::unavailable,
                  "it speaks version " + std::to_string(spoken) + " of the hand-over, not " + std::to_string(version));
  return its.fields.integer("pid", 0, largest).value_or(0);
}

void successors::serve(const std::shared_ptr<control_peer>& peer) {
  try {
    const auto process = agree(*peer);
    peer->send(json_object().text("what", "socket").text("version", TROUPE_VERSION).text("host", who_.host).str(),
               who_.serving.listening_socket());
    peer->send(json_object().text("what", "control").str(), listener_->get());
    const auto described = hear(*peer, "ready").text; // as long as it loads
    taken_over_ = true;
    listener_->leave_path();
    listener_->shut_down();
    who_.replaced(process);
    who_.serving.give_to(peer, described, who_.grace);
    return;
  } catch (const failure& f) {
    peer->send(json_object().text("error", f.what()).str());
    who_.failed(f.what());
  }
  const std::lock_guard lock(mutex_);
  peer_.reset();
}

} // namespace troupe::cli
