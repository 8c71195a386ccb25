#include "api/cli/terminal/answer.hpp"

#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/terminal/word_wrap.hpp"
#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/chat_output.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/chat/whole_prompt.hpp"
#include "runtime/engine/judged_prompt.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include <unistd.h>

namespace troupe::cli {

namespace {

const tokenizer& tokenizer_of(const model_info& model) {
  if (!model.tokenizer)
    throw failure(errc::unsupported, model.id + " has no tokenizer, so that there is no text to put in or get out");
  return *model.tokenizer;
}

/// Prints the sequences of a request in order: the first unfinished one as it arrives, later ones buffered.
class printer {
public:
  printer(std::size_t sequences, bool wrap) : sequences_(sequences), wrap_(wrap && columns() > 0) {
    if (wrap_)
      use_utf8_locale();
    begin();
  }

  void add(const token_event& e) {
    auto& its = sequences_[e.index];
    its.text += e.text;
    its.ended = its.ended || e.finish;
    if (e.index == 0)
      ids_.insert(ids_.end(), e.token_ids.begin(), e.token_ids.end());
    if (e.index == now_)
      show(e.text);
    while (now_ < sequences_.size() && sequences_[now_].ended) {
      end();
      if (++now_ < sequences_.size()) {
        begin();
        show(sequences_[now_].text);
      }
    }
  }

  const std::vector<token_id>& ids() const { return ids_; }

  std::vector<std::string> texts() && {
    if (now_ < sequences_.size())
      end();
    std::vector<std::string> all;
    for (auto& s : sequences_)
      all.push_back(std::move(s.text));
    return all;
  }

private:
  struct sequence {
    std::string text;
    bool ended = false;
  };

  void begin() {
    if (sequences_.size() > 1)
      print("[" + std::to_string(now_ + 1) + "]\n");
  }

  void show(const std::string& text) {
    if (!wrap_)
      return print(text);
    std::string shown; // as stdout will show it, for its width
    visible_.push(text, shown);
    print(lines_.add(shown, columns()));
  }

  void end() {
    if (wrap_) {
      std::string rest;
      visible_.finish(rest);
      print(lines_.add(rest, columns()) + lines_.finish(columns()));
    }
    if (!sequences_[now_].text.ends_with('\n'))
      print("\n");
  }

  static std::size_t columns() { return columns_of(STDOUT_FILENO); }

  std::vector<sequence> sequences_;
  std::vector<token_id> ids_; // of the first
  std::size_t now_ = 0;
  bool wrap_;
  visible_text visible_;
  word_wrap lines_;
};

} // namespace

std::string no_chat_template(const std::string& model, bool generates) {
  if (!generates)
    return model +
      " is an encoder, which generates nothing: `troupe serve` makes embeddings (/v1/embeddings) or scores "
      "(/v1/rerank) with it";
  return model +
    " has no chat template: give one with --chat-template FILE, or continue a plain text with `troupe run --raw`";
}

namespace {

jinja::value values_of(const std::vector<message>& messages) {
  std::vector<jinja::value> list;
  for (const auto& m : messages) {
    jinja::dict fields;
    fields.set("role", m.role);
    fields.set("content", m.content);
    list.emplace_back(std::move(fields));
  }
  return jinja::value::list(std::move(list));
}

} // namespace

std::vector<token_id> chat_prompt(const model_info& model, const std::vector<message>& messages) {
  const auto& tokens = tokenizer_of(model);
  if (!model.chat)
    throw failure(errc::unsupported, no_chat_template(model.id, model.generates));
  const auto render = [&](const jinja::value& shaped) { return model.chat->render({.messages = shaped}); };
  const auto prompt = render_whole(values_of(messages), render,
                                   plain_marks([&](std::string_view text) { return tokens.specials_in(text); }));
  return tokens.encode_around(prompt.text, false, prompt.plain_at);
}

void let_judge(const model_info& model, const std::vector<message>& messages, generation& request) {
  if (!request.sampling.judged() || messages.empty())
    return; // what is no conversation is judged by the text of its tokens
  const auto values = values_of(messages);
  request.sampling.judged_behind = judged_prompt_of(tokenizer_of(model).decode(request.prompt, true), &values);
}

void keep_thinking_budget(const model_info& model, generation& request, bool goes_on) {
  if (request.sampling.thinking_budget < 0)
    return;
  chat_output what;
  what.format = model.format;
  what.bounds_reasoning = true;
  if (!what.format.reasoning && !(what.format.calls && what.format.calls->channels()))
    throw failure(errc::bad_request,
                  "--thinking-budget: " + model.id + " writes no reasoning, as far as its chat template tells");
  if (what.format.reasoning) {
    const auto text = tokenizer_of(model).decode(request.prompt, false);
    const auto begin = text.rfind(what.format.reasoning->begin()), end = text.rfind(what.format.reasoning->end());
    const bool within = begin != text.npos && (end == text.npos || end < begin);
    what.opens_reasoning = goes_on ? within : what.format.reasoning->is_opened_by(text);
    if (goes_on ? !within && end != text.npos : what.format.reasoning->is_closed_by(text)) // there is none to come
      return;
  }
  what.constrain(request.sampling.techniques);
}

std::vector<token_id> plain_prompt(const model_info& model, const std::string& text) {
  return tokenizer_of(model).encode(text, true);
}

std::string answer::timings() const {
  const auto rate = [](double tokens, double ms) { return ms > 0 ? tokens / ms * 1000 : 0; };
  const auto computed = done.prompt_tokens - done.cached_tokens;
  const auto later = done.completion_tokens - std::min<std::size_t>(done.completion_tokens, done.choices.size());
  std::size_t bytes = 0; // of text: a rate that does not depend on the tokenizer
  for (const auto& text : texts)
    bytes += text.size();
  std::array<char, 320> line;
  std::snprintf(line.data(), line.size(),
                "%u tokens in (%u cached), %u out; waited %.1f ms, prefill %.1f ms for %u (%.0f tokens/s), decode %.1f "
                "ms for %zu (%.1f tokens/s, %.0f bytes of text/s)",
                done.prompt_tokens, done.cached_tokens, done.completion_tokens, done.queue_ms, done.prefill_ms,
                computed, rate(computed, done.prefill_ms), done.decode_ms, later,
                rate(static_cast<double>(later), done.decode_ms), rate(static_cast<double>(bytes), done.decode_ms));
  const auto guesses = done.accepted_guesses + done.rejected_guesses;
  return line.data() +
    (guesses == 0 ? std::string()
                  : "; kept " + std::to_string(done.accepted_guesses) + " of " + std::to_string(guesses) + " guesses");
}

std::string cut_note(const done_event& done, int max_tokens, int max_context, const std::string& what) {
  std::vector<std::string> by_tokens, by_context, by_time; // numbers of answers
  for (const auto& choice : done.choices) {
    const auto number = "[" + std::to_string(choice.index + 1) + "]";
    if (choice.reason == finish_reason::timeout)
      by_time.push_back(number);
    else if (choice.reason == finish_reason::length)
      (choice.tokens >= static_cast<std::uint32_t>(max_tokens) ? by_tokens : by_context).push_back(number);
  }
  std::string note;
  const auto add = [&](const std::vector<std::string>& numbers, const std::string& where) {
    if (numbers.empty())
      return;
    note += note.empty() ? "(" : "; ";
    if (done.choices.size() > 1)
      for (const auto& number : numbers)
        note += number + (&number == &numbers.back() ? " " : ", ");
    note += "stopped at " + where;
  };
  add(by_tokens, "--max-tokens " + std::to_string(max_tokens));
  add(by_context, "the end of the context, " + std::to_string(max_context) + " tokens");
  add(by_time, "the end of its time, --request-timeout");
  return note.empty() ? note : note + what + ")";
}

answer print_answer(const engine& from, console& terminal, generation request, const answer_style& style) {
  printer out(static_cast<std::size_t>(request.sampling.n), style.wrap);
  answer result;
  int interrupts = 0;
  auto note = style.note;
  terminal.catch_interrupts();
  const auto submitted = from.submit(std::move(request), [&](event e) { terminal.post(std::move(e)); });
  for (;;) {
    const auto next = terminal.next_event();
    if (!next) {
      result.interrupted = true;
      submitted.cancel();
      if (++interrupts + 1 >= style.interrupts)
        terminal.let_interrupts_end_the_program();
    } else if (const auto* tokens = std::get_if<token_event>(&*next)) {
      if (!note.empty())
        std::cerr << std::exchange(note, {}) << std::endl;
      out.add(*tokens);
    } else if (const auto* done = std::get_if<done_event>(&*next)) {
      result.done = *done;
      result.ids = out.ids();
      result.texts = std::move(out).texts();
      return result;
    } else {
      const auto& why = std::get<error>(*next);
      throw failure(why.code, why.message, why.param);
    }
  }
}

} // namespace troupe::cli
