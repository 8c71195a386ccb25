#include "api/http/log.hpp"

#include "api/http/line_sink.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/machine/threads.hpp"
#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <cmath>

#include <unistd.h>

namespace troupe {

namespace {

constexpr double refusals_per_second = 10, refusals_at_once = 50;
constexpr std::size_t lines_that_wait = 8192, longest_sentence = 2000;

spdlog::level::level_enum level_of(log_level level) {
  switch (level) {
    case log_level::debug: return spdlog::level::debug;
    case log_level::info: return spdlog::level::info;
    case log_level::warn: return spdlog::level::warn;
    case log_level::error: return spdlog::level::err;
    case log_level::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

/// %k: the level as --log-level calls it; spdlog's own name of `warn` is "warning".
class level_name final : public spdlog::custom_flag_formatter {
public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    const auto name = spdlog::level::to_string_view(message.level);
    const std::string_view text = message.level == spdlog::level::warn ? std::string_view("warn")
                                                                       : std::string_view(name.data(), name.size());
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<level_name>(); }
};

void set_up(spdlog::logger& to, log_level level, log_format format) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<level_name>('k').set_pattern(format == log_format::json
                                                     ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%k",%v})"
                                                     : "%Y-%m-%dT%H:%M:%S.%e%z %^%k%$ %v");
  to.set_level(level_of(level));
  to.set_formatter(std::move(formatter));
}

/// A JSON string without its quotes, if it needs none.
std::string bare(std::string quoted) {
  const auto inner = std::string_view(quoted).substr(1, quoted.size() - 2);
  const bool plain = !inner.empty() && inner.find_first_of(" =\"\\") == inner.npos;
  return plain ? std::string(inner) : quoted;
}

std::string rounded(double value) { return json_number(std::round(value * 100) / 100); }

std::string text_of(const log_field& field, log_format format) {
  if (const auto* count = std::get_if<std::uint64_t>(&field.value))
    return std::to_string(*count);
  if (const auto* number = std::get_if<double>(&field.value))
    return rounded(*number);
  auto text = log_text(std::get<std::string>(field.value));
  return format == log_format::json ? text : bare(std::move(text));
}

/// spdlog's loggers hold only a weak reference to their thread pool.
struct threaded_loggers {
  std::shared_ptr<spdlog::details::thread_pool> thread;
  std::shared_ptr<spdlog::async_logger> lines, plain;
};

} // namespace

std::optional<std::uint64_t> rate_limit::pass(clock::time_point now) {
  const auto since = std::chrono::duration<double>(now - last_).count();
  left_ = std::min(burst_, left_ + since * per_second_);
  last_ = now;
  if (left_ < 1) {
    ++held_back_;
    return std::nullopt;
  }
  left_ -= 1;
  return std::exchange(held_back_, 0);
}

std::string log_text(std::string_view text, std::size_t most) {
  const auto quoted = json_text(to_utf8(text.substr(0, most)) + (text.size() > most ? "..." : ""));
  // JSON does not escape DEL, Latin-1's control characters, Unicode's line breaks or what turns text around, which
  // terminals and line readers may act upon.
  std::string result;
  for (std::size_t at = 0; at < quoted.size();) {
    const auto begin = at;
    const auto c = next_char(quoted, at);
    const auto text = std::string_view(quoted).substr(begin, at - begin);
    if (may_be_in_name(c))
      result += text;
    else if (c == 0x7f)
      append_unicode_escape(result, c);
    else
      append_json_escaped(result, text, json_escapes::ascii);
  }
  return result;
}

server_log::server_log(std::shared_ptr<spdlog::logger> to, std::shared_ptr<spdlog::logger> plain, log_level level,
                       log_format format)
  : to_(std::move(to)),
    plain_(std::move(plain)),
    level_(level),
    format_(format),
    refusals_(refusals_per_second, refusals_at_once) {
  set_up(*to_, level, format);
}

server_log::~server_log() = default;

std::shared_ptr<server_log> server_log::on_stderr(log_level level, log_format format) {
  return on_descriptor(STDERR_FILENO, level, format);
}

std::shared_ptr<server_log> server_log::on_descriptor(int descriptor, log_level level, log_format format) {
  const auto sink = std::make_shared<line_sink>(descriptor);
  return std::shared_ptr<server_log>(new server_log(std::make_shared<spdlog::logger>("troupe", sink),
                                                    std::make_shared<spdlog::logger>(line_sink::plain, sink), level,
                                                    format));
}

void server_log::start_thread() {
  const auto all = std::make_shared<threaded_loggers>();
  all->thread = std::make_shared<spdlog::details::thread_pool>(lines_that_wait, 1, [] { name_thread("log"); });
  const auto threaded = [&](const spdlog::logger& from) {
    return std::make_shared<spdlog::async_logger>(from.name(), from.sinks().front(), all->thread,
                                                  spdlog::async_overflow_policy::overrun_oldest);
  };
  all->lines = threaded(*to_);
  all->plain = threaded(*plain_);
  set_up(*all->lines, level_, format_);
  to_ = {all, all->lines.get()};
  plain_ = {all, all->plain.get()};
}

std::shared_ptr<server_log> server_log::on_stream(std::ostream& to, log_level level, log_format format) {
  auto logger = std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::ostream_sink_mt>(to));
  return std::shared_ptr<server_log>(new server_log(std::move(logger), nullptr, level, format));
}

void server_log::print(std::string_view text) {
  if (plain_)
    plain_->log(spdlog::level::critical, spdlog::string_view_t(text.data(), text.size()));
}

bool server_log::wants(log_level level) const { return level != log_level::off && level >= level_.load(); }

void server_log::set_level(log_level level) {
  level_ = level;
  to_->set_level(level_of(level));
}

void server_log::write(log_level level, std::string_view what, const log_fields& fields) {
  if (!wants(level))
    return;
  std::string line = format_ == log_format::json ? "\"event\":" + log_text(what) : std::string(what);
  for (const auto& field : fields) {
    const auto value = text_of(field, format_);
    if (format_ == log_format::json)
      line += ",\"" + std::string(field.name) + "\":" + value;
    else
      line += ' ' + std::string(field.name) + '=' + value;
  }
  to_->log(level_of(level), spdlog::string_view_t(line.data(), line.size()));
}

void server_log::say(log_level level, std::string_view what, std::string_view sentence) {
  if (!wants(level))
    return;
  const auto quoted = log_text(sentence, longest_sentence);
  std::string line;
  if (format_ == log_format::json)
    line = "\"event\":" + log_text(what) + ",\"message\":" + quoted;
  else
    for (std::size_t i = 1; i + 1 < quoted.size(); ++i) // quotes and backslashes as they are
      line += quoted[i] == '\\' && (quoted[i + 1] == '"' || quoted[i + 1] == '\\') ? quoted[++i] : quoted[i];
  to_->log(level_of(level), spdlog::string_view_t(line.data(), line.size()));
}

void server_log::write_refusal(std::string_view what, log_fields fields) {
  if (!wants(log_level::warn))
    return;
  std::optional<std::uint64_t> left_out;
  {
    const std::lock_guard lock(mutex_);
    left_out = refusals_.pass(rate_limit::clock::now());
  }
  if (!left_out)
    return;
  if (*left_out > 0)
    fields.push_back({"left_out", *left_out});
  write(log_level::warn, what, fields);
}

} // namespace troupe
