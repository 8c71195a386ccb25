#include "api/record/record_comparison.hpp"
#include "api/record/record_reader.hpp"
#include "api/record/recorder.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include <stdlib.h>

using namespace troupe;

namespace {

const recorded_head head{.version = "1.2", .build = "c0ffee", .begun = "2026-11-30T08:15:00Z"};

recorded_answer answer_of(std::vector<token_id> ids, std::string finish = "length") {
  recorded_answer a{.ids = std::move(ids), .tokens = 0, .finish = std::move(finish)};
  a.tokens = a.ids.size();
  for (const auto id : a.ids)
    a.logprobs.push_back(-0.1F * static_cast<float>(id));
  return a;
}

recorded_prompt prompt_of(std::vector<recorded_answer> answers) {
  recorded_prompt p;
  p.tokens = 3;
  p.answers = std::move(answers);
  return p;
}

/// A temporary folder, removed with its contents.
struct record_place {
  std::string name = (std::filesystem::temp_directory_path() / "troupe-record-XXXXXX").string();

  record_place() { REQUIRE(mkdtemp(name.data()) != nullptr); }
  record_place(const record_place&) = delete;
  record_place& operator=(const record_place&) = delete;
  ~record_place() {
    std::error_code ignored;
    std::filesystem::remove_all(name, ignored);
  }
  std::filesystem::path path() const { return name; }
};

/// A folder in which somebody records.
struct recorded_folder {
  record_place folder;
  std::string trouble;

  std::unique_ptr<record_folder> open(record_bounds bounds = {}, const recorded_head& with = head) {
    return std::make_unique<record_folder>(folder.path() / "record", with, bounds,
                                           [this](const std::string& why) { trouble = why; });
  }
  std::filesystem::path path() const { return folder.path() / "record"; }
};

/// What an engine says to a prompt: its tokens one by one, and the end.
void say(const event_sink& to, const recorded_answer& what) {
  for (std::size_t i = 0; i < what.ids.size(); ++i) {
    token_event e;
    e.token_ids = {what.ids[i]};
    e.logprobs = {{.id = what.ids[i], .logprob = what.logprobs[i]}};
    if (i + 1 == what.ids.size())
      e.finish = finish_reason::length;
    to(e);
  }
  done_event done;
  done.prompt_tokens = 3;
  to(done);
}

} // namespace

TEST_CASE("lines of a record are read as they were written, floats by their bits") {
  recorded_end end{.number = 7, .at = record_time(1234), .first = record_time(99), .status = 200, .model = "m"};
  end.prompts = {prompt_of({answer_of({5, 6}), answer_of({}, "")})};
  end.prompts[0].answers[0].logprobs = {-0.0F, -std::nextafter(0.1F, 1.0F)};
  end.prompts[0].seed = ~std::uint64_t(0);
  end.prompts[0].values = 17;
  const auto read = std::get<recorded_end>(parse_record_line(line_of(end), "x"));
  CHECK(read.number == 7);
  CHECK(read.at.count() == 1234);
  CHECK(read.first.count() == 99);
  CHECK(read.prompts[0].seed == ~std::uint64_t(0));
  CHECK(read.prompts[0].values == 17);
  CHECK(read.prompts[0].answers[0].ids == std::vector<token_id>{5, 6});
  CHECK(std::signbit(read.prompts[0].answers[0].logprobs[0]));
  CHECK(read.prompts[0].answers[0].logprobs[1] == end.prompts[0].answers[0].logprobs[1]);
  CHECK_FALSE(compare(end.prompts, read.prompts).first);

  const recorded_begin begin{3, record_time(5), "id\"", "/v1/completions", "2", "{\"prompt\": \"a\\nb\"}"};
  const auto again = std::get<recorded_begin>(parse_record_line(line_of(begin), "x"));
  CHECK(again.body == begin.body);
  CHECK(again.id == begin.id);
}

TEST_CASE("a record's head says by which build it was made, and one of a version that did not say so is read") {
  const auto line = line_of(head);
  CHECK(std::get<recorded_head>(parse_record_line(line, "x")).build == "c0ffee");
  auto older = line;
  older.erase(older.find("\"build\""), std::string_view("\"build\":\"c0ffee\",").size());
  CHECK(std::get<recorded_head>(parse_record_line(older, "x")).build.empty());
}

TEST_CASE("a line that is no record's is refused by the file's name") {
  for (
    const auto* text :
    {"", "[]", "{}", R"({"troupe_record": 99, "version": "", "begun": "", "process": 1, "prompts": true})",
     R"({"begin": -1})", R"({"begin": 1, "us": 9000000000000000000, "id": "", "endpoint": "", "client": ""})",
     R"({"end": 1, "us": 1, "first_us": 0, "status": 200, "prompts": [{"seed": "0", "tokens": 1000000000000, "cached": 0, "answers": []}]})",
     R"({"end": 1, "us": 1, "first_us": 0, "status": 200, "prompts": [{}]})"}) {
    std::string why;
    try {
      parse_record_line(text, "record-1.jsonl");
    } catch (const failure& f) {
      why = f.what();
    }
    CHECK_MESSAGE(why.find("record-1.jsonl") != std::string::npos, text, ": ", why);
  }
}

TEST_CASE("what a server's requests ask and hear is recorded, with log-probabilities that they did not ask for") {
  recorded_folder f;
  std::vector<event> heard;
  {
    const auto r = std::make_shared<recorder>(f.open(), true);
    r->add_model("m", "abc");
    const auto one = r->begin("a", "/v1/completions", "somebody", R"({"prompt": "x"})");
    const auto left = r->begin("b", "/v1/completions", "another", "{}"); // ends with nothing
    generation asked;
    asked.model = "m";
    asked.sampling.seed = 42;
    const auto sink = recorder::listen(one, 0, asked, [&](event e) { heard.push_back(std::move(e)); });
    CHECK(asked.sampling.logprobs == 0);
    say(sink, answer_of({5, 6}));
    recorder::end(one, 200);
    CHECK(r->recorded() == 2);
    CHECK(r->lost() == 0);
  }
  REQUIRE(heard.size() == 3);
  CHECK(std::get<token_event>(heard[0]).logprobs.empty());
  record_reader read(f.path());
  REQUIRE(read.size() == 2);
  CHECK(read.models().at("m") == "abc");
  CHECK(read.begin(0).body == R"({"prompt": "x"})");
  CHECK(read.begin(1).client == "2");
  const auto end = read.end(0);
  REQUIRE(end);
  CHECK(end->status == 200);
  CHECK(end->model == "m");
  CHECK(end->prompts.at(0).seed == 42);
  CHECK_FALSE(compare(end->prompts, {prompt_of({answer_of({5, 6})})}).first);
  CHECK(read.end(1)->status == 0);
}

TEST_CASE("a client gets the log-probabilities that it asked for") {
  recorded_folder f;
  const auto r = std::make_shared<recorder>(f.open(), true);
  const auto one = r->begin("a", "/v1/completions", "somebody", "{}");
  generation asked;
  asked.sampling.logprobs = 2;
  std::size_t got = 0;
  say(recorder::listen(one, 0, asked,
                       [&](const event& e) {
                         if (const auto* token = std::get_if<token_event>(&e))
                           got += token->logprobs.size();
                       }),
      answer_of({5, 6}));
  CHECK(asked.sampling.logprobs == 2);
  CHECK(got == 2);
}

TEST_CASE("without prompts, a record has neither bodies nor tokens, and nothing more is computed") {
  recorded_folder f;
  auto without = head;
  without.has_prompts = false;
  {
    const auto r = std::make_shared<recorder>(f.open({}, without), false);
    const auto one = r->begin("a", "/v1/completions", "somebody", R"({"prompt": "a secret"})");
    generation asked;
    say(recorder::listen(one, 0, asked, [](const event&) {}), answer_of({5, 6}));
    CHECK(asked.sampling.logprobs == -1);
    recorder::end(one, 200);
  }
  record_reader read(f.path());
  CHECK(read.begin(0).body.empty());
  const auto end = read.end(0);
  CHECK(end->prompts.at(0).answers.at(0).ids.empty());
  CHECK(end->prompts.at(0).answers.at(0).tokens == 2);
  for (const auto& file : record_folder::files_in(f.path())) {
    std::ifstream in(file);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    CHECK(all.find("secret") == std::string::npos);
  }
}

TEST_CASE("the oldest files of a record make room for the newest, each of which begins as a record does") {
  recorded_folder f;
  const auto is_written = [&](std::uint64_t number) {
    std::ifstream in(record_folder::files_in(f.path()).back());
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    return all.find("{\"begin\":" + std::to_string(number) + ',') != std::string::npos;
  };
  for (int run = 0; run < 2; ++run) {
    const auto folder = f.open({.all = 64 << 10});
    for (std::uint64_t i = 1; i <= 60; ++i) {
      while (!folder->add(recorded_begin{i, record_time(i), "id", "/v1/completions", "1", std::string(4000, 'x')}))
        std::this_thread::yield();
      const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
      while (i % 10 == 0 && !is_written(i) && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::uintmax_t all = 0;
  const auto files = record_folder::files_in(f.path());
  for (const auto& file : files) {
    all += std::filesystem::file_size(file);
    std::ifstream in(file);
    std::string first;
    std::getline(in, first);
    CHECK(std::holds_alternative<recorded_head>(parse_record_line(first, "x")));
    CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::mask) ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  }
  CHECK(files.size() > 1);
  CHECK(all <= 128 << 10); // of many lines that are written at once, a file takes all
  CHECK(f.trouble.empty());
  CHECK(record_reader(f.path()).size() > 1);
}

TEST_CASE("lines that would wait behind too many others are lost, and nobody waits") {
  recorded_folder f;
  const auto folder = f.open({.waiting = 100});
  CHECK_FALSE(folder->add(recorded_begin{1, {}, "id", "/v1/completions", "1", std::string(200, 'x')}));
}

TEST_CASE("a record of several runs is read one behind the other, and without the line that was not finished") {
  recorded_folder f;
  for (const auto* begun : {"2026-11-30T08:00:00Z", "2026-11-30T09:00:00Z"}) {
    auto its = head;
    its.begun = begun;
    const auto folder = f.open({}, its);
    folder->add(recorded_begin{1, record_time(50), begun, "/v1/completions", "1", "{}"});
    folder->add(recorded_end{.number = 1, .at = record_time(60), .status = 200, .model = begun});
  }
  {
    std::ofstream out(record_folder::files_in(f.path()).back(), std::ios::app);
    out << R"({"begin":2,"us":)";
  }
  record_reader read(f.path());
  REQUIRE(read.size() == 2);
  CHECK(read.runs().size() == 2);
  CHECK(read.arrival(0).count() == 50);
  CHECK(read.arrival(1).count() == 100);
  CHECK(read.end(0)->model == "2026-11-30T08:00:00Z");
  CHECK(read.end(1)->model == "2026-11-30T09:00:00Z");
}

TEST_CASE("two processes record in one folder, as one takes the other's place") {
  recorded_folder f;
  auto next = head;
  next.process = 2;
  {
    const auto old = f.open({.all = 8 << 10});
    old->add(recorded_begin{1, record_time(5), "old", "/v1/completions", "1", "{}"});
    const auto now = f.open({.all = 8 << 10}, next);
    now->add(recorded_begin{1, record_time(7), "new", "/v1/completions", "1", "{}"});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));                         // both write
    old->add(recorded_end{.number = 1, .status = 200, .model = std::string(900, 'o')}); // in a further file
    now->add(recorded_end{.number = 1, .status = 200, .model = std::string(900, 'n')});
  }
  CHECK(f.trouble.empty());
  record_reader read(f.path());
  REQUIRE(read.size() == 2);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(read.end(i)->model.front() == read.begin(i).id.front());
}

TEST_CASE("a folder that has no record is told so") {
  const record_place empty;
  CHECK_THROWS_WITH_AS(record_reader(empty.path()), doctest::Contains("serve --record"), failure);
}

TEST_CASE("the first token that differs is found, and how far log-probabilities are apart before it") {
  auto was = answer_of({5, 6, 7});
  auto now = was;
  using kind = record_difference::kind;
  CHECK_FALSE(compare({prompt_of({was})}, {prompt_of({now})}).first);

  now.ids[1] = 8;
  auto found = compare({prompt_of({was})}, {prompt_of({now})});
  REQUIRE(found.first);
  CHECK(found.first->what == kind::tokens);
  CHECK(found.first->token == 1);
  CHECK(found.first->was == 6);
  CHECK(found.first->is == 8);
  CHECK(found.tokens == 1);

  now = was;
  now.logprobs[2] = std::nextafter(now.logprobs[2], 0.0F);
  found = compare({prompt_of({was}), prompt_of({was})}, {prompt_of({was}), prompt_of({now})});
  REQUIRE(found.first);
  CHECK(found.first->prompt == 1);
  CHECK(found.first->token == 2);
  CHECK(found.largest > 0);
  CHECK(found.largest < 1e-6);
}

TEST_CASE("an answer that was broken off is compared as far as it came, one that ended is not longer or shorter") {
  const auto whole = answer_of({5, 6, 7});
  CHECK_FALSE(compare({prompt_of({answer_of({5, 6}, "cancelled")})}, {prompt_of({whole})}).first);
  CHECK_FALSE(compare({prompt_of({answer_of({5, 6}, "")})}, {prompt_of({whole})}).first);
  CHECK(compare({prompt_of({answer_of({5, 8}, "cancelled")})}, {prompt_of({whole})}).first);
  const auto longer = compare({prompt_of({answer_of({5, 6}, "stop")})}, {prompt_of({whole})});
  REQUIRE(longer.first);
  CHECK(longer.first->what == record_difference::kind::ends);
  CHECK_FALSE(longer.first->was);
  CHECK(longer.first->is == 7);
  CHECK(compare({prompt_of({whole})}, {prompt_of({answer_of({5, 6}, "stop")})}).first);
  CHECK(compare({prompt_of({whole, whole})}, {prompt_of({whole})}).first);
  CHECK(compare({prompt_of({whole})}, {}).first);
}

TEST_CASE("embeddings and scores of prompts are compared by a checksum") {
  recorded_prompt was = prompt_of(std::vector<recorded_answer>()), now = was;
  was.values = 1;
  now.values = 2;
  REQUIRE(compare({was}, {now}).first);
  CHECK(compare({was}, {now}).first->what == record_difference::kind::values);
  now.values = 1;
  CHECK_FALSE(compare({was}, {now}).first);
}
