// `troupe chat` at a terminal and in a pipe, and the parts it is made of.
#include "api/cli/terminal/chat_history.hpp"
#include "api/cli/terminal/chat_window.hpp"
#include "runtime/support/error.hpp"
#include "tests/api/cli/terminal.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sys/stat.h>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

strings chat_with(const strings& more = {}, const std::string& context = "1024") {
  strings all{"chat",
              "--quiet",
              "--verbose",
              "--model",
              golden("llama-mha-tied"),
              "--max-tokens",
              "2",
              "--temperature",
              "0",
              "--ignore-eos",
              "--max-context",
              context,
              "--kv-cache",
              "16MiB",
              "--threads",
              "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string content(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator(in), {}};
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i)
    all += text;
  return all;
}

/// The prompts' tokens, as `--verbose` prints them.
std::vector<int> prompts(const std::string& err) {
  std::vector<int> found;
  const std::regex line("(\\d+) tokens in ");
  for (auto at = std::sregex_iterator(err.begin(), err.end(), line); at != std::sregex_iterator(); ++at)
    found.push_back(std::stoi((*at)[1]));
  return found;
}

constexpr std::string_view prompt = "> ", answered = " tokens in (";

} // namespace

TEST_CASE("Typed text can be edited, UTF-8 included, and is found in the history") {
  const temporary_folder home;
  const auto file = home.path / "state" / "troupe" / "chat-history";
  {
    terminal chat(chat_with(), home);
    REQUIRE(chat.shows(prompt));
    chat.type("Hxello\033[D\033[D\033[D\033[D\177\r"); // four to the left, then delete the character before
    REQUIRE(chat.shows(answered));
    REQUIRE(chat.shows(prompt));
    chat.type("na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\xA6\x8A!\177?\r");
    REQUIRE(chat.shows(answered));
    REQUIRE(chat.shows(prompt));
    chat.type("\033[A\033[A\r"); // the first turn
    REQUIRE(chat.shows("Hello"));
    REQUIRE(chat.shows(answered));
    REQUIRE(chat.shows(prompt));
    chat.type("one \\\r");
    REQUIRE(chat.shows("  "));
    chat.type("two\033\rthree\r");
    REQUIRE(chat.shows(answered));
    REQUIRE(chat.shows(prompt));
    chat.type("\004");
    CHECK(chat.wait() == 0);
  }
  const auto one_turn = [&](const strings& more, std::string_view keys) {
    terminal chat(chat_with(more), home);
    REQUIRE(chat.shows(prompt));
    chat.type(keys);
    REQUIRE(chat.shows(answered));
    REQUIRE(chat.shows(prompt));
    chat.type("/exit\r");
    CHECK(chat.wait() == 0);
  };
  const std::string first = "\"Hello\"\n\"na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\xA6\x8A?\"\n\"Hello\"\n"
                            "\"one \\ntwo\\nthree\"\n";
  CHECK(content(file) == first);
  struct stat info = {};
  REQUIRE(stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  one_turn({}, "\033[A\033[A\r"); // finds the turn of the earlier chat
  CHECK(content(file) == first + "\"Hello\"\n\"/exit\"\n");
  const auto kept = content(file);
  one_turn({"--no-history"}, "a secret\r");
  CHECK(content(file) == kept);
}

TEST_CASE("A paste is one turn, with any number of lines and any length") {
  const temporary_folder home;
  terminal chat(chat_with({}, "2048"), home);
  REQUIRE(chat.shows("\033[?2004h"));
  REQUIRE(chat.shows(prompt));
  chat.paste("first line\nsecond\tline\rthird \xC3\xA9\n");
  chat.type("\r");
  REQUIRE(chat.shows(answered));
  REQUIRE(chat.shows(prompt));
  // A terminal in canonical mode keeps 4,095 bytes of a line.
  const auto book = repeated("0123456789", 1000);
  chat.paste(book + "\nthe end");
  chat.type("\r");
  REQUIRE(chat.shows("the prompt has ")); // tokens, more than the context
  REQUIRE(chat.shows(prompt));
  chat.type(repeated("abcdefghij", 900) + "\r"); // the same without brackets
  REQUIRE(chat.shows("the prompt has "));
  REQUIRE(chat.shows(prompt));
  chat.type("\004");
  CHECK(chat.wait() == 0);
  CHECK(chat.screen().ends_with("\033[?2004l\r\n"));
  const auto turns = cli::read_chat_history(home.path / "state" / "troupe" / "chat-history");
  REQUIRE(turns.size() == 3);
  CHECK(turns[0] == "first line\nsecond\tline\nthird \xC3\xA9");
  CHECK(turns[1] == book + "\nthe end");
  CHECK(turns[2] == repeated("abcdefghij", 900));
}

TEST_CASE("Ctrl-C at a terminal drops what is typed and never ends the chat; SIGTERM ends it at once") {
  const temporary_folder home;
  {
    terminal chat(chat_with(), home);
    REQUIRE(chat.shows(prompt));
    chat.type("not this");
    REQUIRE(chat.shows("not this"));
    chat.type("\003");
    REQUIRE(chat.shows("^C"));
    REQUIRE(chat.shows(prompt));
    for (int i = 0; i < 4; ++i) {
      chat.type("\003");
      REQUIRE(chat.shows("(Ctrl-D or /exit leaves)"));
      REQUIRE(chat.shows(prompt));
    }
    chat.type("/bye\r");
    CHECK(chat.wait() == 0);
  }
  terminal chat(chat_with(), home);
  REQUIRE(chat.shows(prompt));
  chat.type("not this");
  REQUIRE(chat.shows("not this"));
  chat.signal(SIGTERM);
  CHECK(chat.wait() == 130);
}

TEST_CASE("Ctrl-C twice during an answer stops it and keeps the conversation; SIGTERM ends the chat") {
  const temporary_folder home;
  // Its answer has begun: some words stand behind what was typed.
  const auto answers = [](terminal& in, std::string_view typed) {
    return in.shows(typed) && in.shows("\r\n") && in.shows(" ") && in.shows(" ") && in.shows(" ");
  };
  terminal chat(chat_with({"--max-tokens", "100000", "--kv-cache", "64MiB"}, "8192"), home);
  REQUIRE(chat.shows(prompt));
  chat.type("Tell me a story\r");
  REQUIRE(answers(chat, "story"));
  chat.type("\003\003");
  REQUIRE(chat.shows(answered));
  REQUIRE(chat.shows(prompt));
  chat.type("Who was in it?\r");
  REQUIRE(answers(chat, "in it?"));
  chat.type("\003");
  REQUIRE(chat.shows(answered));
  const auto sizes = prompts(chat.screen());
  REQUIRE(sizes.size() == 2);
  CHECK(sizes[1] > sizes[0] + 8); // the first turn and what there was of its answer are part of the second prompt
  REQUIRE(chat.shows(prompt));
  chat.type("And then?\r");
  REQUIRE(answers(chat, "then?"));
  chat.signal(SIGTERM);
  CHECK(chat.wait() == 130);
}

TEST_CASE("What is typed during an answer stands behind the next prompt, and not within the answer") {
  const temporary_folder home;
  terminal chat(chat_with({"--max-tokens", "100"}, "1024"), home);
  REQUIRE(chat.shows(prompt));
  chat.type("Tell me a story\r");
  REQUIRE((chat.shows("story") && chat.shows("\r\n") && chat.shows(" "))); // the answer has begun
  chat.type("and then?");
  REQUIRE(chat.shows(answered));
  REQUIRE(chat.shows(prompt));
  REQUIRE(chat.shows("and then?"));
  CHECK(chat.screen().find("and then?") == chat.screen().rfind("and then?"));
  chat.type("\003");
  REQUIRE(chat.shows(prompt));
  chat.type("/exit\r");
  CHECK(chat.wait() == 0);
}

TEST_CASE("A chat that cannot go on within an answer leaves a terminal that shows what is typed") {
  const temporary_folder home;
  const auto model = home.path / "model";
  fs::copy(golden("llama-gqa"), model);
  auto arguments = chat_with();
  std::ranges::replace(arguments, golden("llama-mha-tied"), model.string());
  terminal chat(arguments, home);
  REQUIRE(chat.shows(prompt));
  chat.type("Tell me a story\r");
  REQUIRE(chat.shows(answered));
  REQUIRE(chat.shows(prompt));
  fs::resize_file(model / "model.safetensors", 0);
  chat.type("And then?\r");
  CHECK(chat.shows("a model file was truncated"));
  CHECK(chat.wait() == 1);
  CHECK(chat.echoes());
}

TEST_CASE("A turn that is too long by itself leaves the conversation as it is, and no note says otherwise") {
  std::string lines;
  for (int i = 0; i < 3; ++i)
    lines += "Turn " + std::to_string(i) + ": the sun.\n";
  const auto result = run_troupe(chat_with({}, "256"), lines + repeated("0123456789", 200) + "\nAnd the moon.\n");
  CHECK(result.status == 1);
  CHECK(result.err.find("the prompt has ") != std::string::npos);
  CHECK(result.err.find("left out") == std::string::npos);
  const auto sizes = prompts(result.err);
  REQUIRE(sizes.size() == 4);
  CHECK(sizes[3] > sizes[2]);
}

TEST_CASE("A conversation that the context cannot hold goes on without its oldest turns, with a note") {
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += "Turn " + std::to_string(i) + ": the sun, the moon and all the stars of heaven.\n";
  const auto result = run_troupe(chat_with({}, "256"), lines);
  CHECK(result.status == 0);
  CHECK(result.err.find("(the conversation has become too long for the context of 256 tokens; ") != std::string::npos);
  const auto sizes = prompts(result.err);
  CHECK(sizes.size() == 12); // each was answered
  CHECK(*std::max_element(sizes.begin(), sizes.end()) <= 254);
  CHECK(std::adjacent_find(sizes.begin(), sizes.end(), std::greater<>()) != sizes.end());
}

TEST_CASE("As few turns as needed for a while are left out, and all if one turn alone is too long") {
  const auto left_out = [](std::size_t earlier, std::size_t each, std::size_t last) {
    return cli::turns_to_leave_out(earlier, 1000, 100,
                                   [=](std::size_t without) { return (earlier - without) * each + last; });
  };
  CHECK(left_out(0, 100, 5000) == 0);
  CHECK(left_out(8, 100, 100) == 0);  // 900 of 900
  CHECK(left_out(9, 100, 100) == 4);  // 600 of 675
  CHECK(left_out(90, 10, 100) == 33); // 670
  CHECK(left_out(3, 300, 700) == 3);
  CHECK(left_out(3, 10, 5000) == 3);
  CHECK(cli::turns_to_leave_out(9, 1000, 512, [](std::size_t n) { return (9 - n) * 100; }) == 4); // 250 for the answer
}

TEST_CASE("Lines of a pipe are turns up to the limit's length") {
  const auto result = run_troupe(chat_with({}, "1024"), repeated("x", (16 << 20) + 1));
  CHECK(result.status == 1);
  CHECK(result.err == "troupe: a line of stdin has more than the 16 MiB that a turn may have\n");
  const auto longer = run_troupe(chat_with({}, "1024"), repeated("0123456789", 500) + "\nHello\n");
  CHECK(longer.status == 1); // as a turn failed
  CHECK(longer.err.find("the prompt has ") != std::string::npos);
  CHECK(prompts(longer.err).size() == 1);
}

TEST_CASE("A history is kept short and private, and is read even if damaged") {
  const temporary_folder folder;
  const auto file = folder.path / "a" / "b";
  CHECK(cli::read_chat_history(file).empty());
  cli::add_to_chat_history(file, "one\n\"two\"");
  cli::add_to_chat_history(file, repeated("x", 20'000)); // too long to keep
  cli::add_to_chat_history(file, "three");
  CHECK(cli::read_chat_history(file) == strings{"one\n\"two\"", "three"});
  std::ofstream(file, std::ios::app) << "\"half a li";
  CHECK(cli::read_chat_history(file).size() == 2);
  for (int i = 0; i < 300; ++i)
    cli::add_to_chat_history(file, repeated("y", 5'000) + std::to_string(i));
  const auto turns = cli::read_chat_history(file);
  CHECK(turns.back() == repeated("y", 5'000) + "299");
  CHECK(turns.size() > 50);
  CHECK(fs::file_size(file) < 600'000);
  CHECK((fs::status(file).permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_THROWS_AS(cli::read_chat_history(file), failure);
  CHECK_THROWS_AS(cli::add_to_chat_history(file, "x"), failure);
}

TEST_CASE("An answer that was cut goes on where it ended, another is answered again, and settings hold from then on") {
  const auto whole = run_troupe(chat_with({"--max-tokens", "24"}), "Tell me a story\n");
  const auto parts = run_troupe(chat_with({"--max-tokens", "8"}), "Tell me a story\n/continue\n/continue\n");
  CHECK(parts.status == 0);
  const auto letters = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    return text;
  };
  CHECK(letters(parts.out) == letters(whole.out));
  const auto sizes = prompts(parts.err);
  REQUIRE(sizes.size() == 3);
  CHECK(sizes[1] == sizes[0] + 8);
  CHECK(sizes[2] == sizes[0] + 16);

  const auto again = run_troupe(chat_with({"--temperature", "1", "--seed", "3", "--max-tokens", "16"}),
                                "Tell me a story\n/regen\n/regen\n");
  CHECK(again.status == 0);
  const auto repeated_sizes = prompts(again.err);
  REQUIRE(repeated_sizes.size() == 3);
  CHECK(repeated_sizes[1] == repeated_sizes[0]); // the first answer is no part of it
  CHECK(repeated_sizes[2] == repeated_sizes[0]);

  const auto set = run_troupe(chat_with({}), "/set max-tokens 5\nHello\n/set\n/set temperature 9\n");
  CHECK(set.err.find(", 5 out; ") != std::string::npos);
  CHECK(set.out.find("max-tokens: 5\n") != std::string::npos);
  CHECK(set.err.find("troupe: --temperature: must be a number from 0 to 2, found `9`") != std::string::npos);
  CHECK(set.status == 1); // a turn of a pipe was wrong

  const auto nothing = run_troupe(chat_with({}), "/continue\n/regen\n");
  CHECK(nothing.err.find("there is no answer that was cut") != std::string::npos);
  CHECK(nothing.err.find("there is no turn yet") != std::string::npos);
}

TEST_CASE("A chat's answers may take the rest of the context, and it says how to go on") {
  const strings flags{"chat",          "--model",   golden("llama-mha-tied"),
                      "--temperature", "0",         "--ignore-eos",
                      "--max-context", "256",       "--kv-cache",
                      "16MiB",         "--threads", "1"};
  const auto result = run_troupe(flags, "Tell me a story\n");
  CHECK(result.status == 0);
  CHECK(result.err.find("(stopped at the end of the context, 256 tokens; /continue goes on)") != std::string::npos);
}
