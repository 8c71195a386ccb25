// Commands whose stdout, stdin or named file is closed, full or of the wrong kind.
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>

#include <sys/stat.h>

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// Runs `troupe` under a shell with these redirections.
outcome redirected(const std::string& how, const strings& arguments, const std::string& typed = {}) {
  return program("/bin/sh", strings{"-c", "exec \"$0\" \"$@\" " + how, TROUPE_PROGRAM} + arguments, typed).wait();
}

std::string last_line(const std::string& text) {
  if (text.empty())
    return {};
  return text.substr(text.rfind('\n', text.size() - 2) + 1);
}

} // namespace

TEST_CASE("Every command fails with a sentence if its output cannot be written") {
  const temporary_folder folder;
  const auto text = folder.write("text", "ROMEO: the sun, the moon and all the stars of heaven are not as bright.");
  const strings model{"--model", golden("llama-gqa")};
  const std::vector<strings> commands{
    {"--version"},
    {"run", "--help"},
    strings{"run", "Hello", "--quiet", "--max-tokens", "2"} + small + model,
    strings{"chat", "--quiet", "--max-tokens", "2", "--model", golden("llama-mha-tied")} + small,
    strings{"tokenize", "Hello"} + model,
    strings{"tokenize", "Hello", "--json"} + model,
    strings{"tokenize", "--decode", "1 2"} + model,
    strings{"quantize", "--to", "q8_0", "--out", (folder.path / "m.gguf").string()} + model,
    strings{"bench", "model", "--prompt", "4", "--generate", "1", "--batch", "1", "--repeat", "1", "--threads", "1"} +
      model,
    strings{"bench", "perplexity", "--text", text, "--threads", "1"} + model,
    strings{"serve", "--port", "0"} + small + model};
  for (const auto& command : commands) {
    INFO(command.front() << " " << command.back());
    const auto full = redirected(">/dev/full", command, "Hello\n");
    CHECK(full.status == 1);
    CHECK(last_line(full.err) == "troupe: stdout cannot be written: No space left on device\n");
    const auto closed = redirected(">&-", command, "Hello\n");
    CHECK(closed.status == 1);
    CHECK(last_line(closed.err) == "troupe: stdout cannot be written: Bad file descriptor\n");
  }
}

TEST_CASE("A long output that cannot be written is noticed, too") {
  std::string text;
  for (int i = 0; i < 20'000; ++i)
    text += "a b ";
  const auto result = redirected(">/dev/full", {"tokenize", "-", "--model", golden("llama-gqa")}, text);
  CHECK(result.status == 1);
  CHECK(result.err.starts_with("troupe: stdout cannot be written"));
}

TEST_CASE("Generation ends as soon as its text cannot be written, silently if the reader is gone") {
  const strings endless{
    "run",    "Once",         "--raw",         "--quiet", "--verbose",  "--model", golden("llama-gqa"), "--max-tokens",
    "100000", "--ignore-eos", "--max-context", "2048",    "--kv-cache", "16MiB",   "--temperature",     "0"};
  const auto full = redirected(">/dev/full", endless);
  CHECK(full.status == 1);
  CHECK(full.err == "troupe: stdout cannot be written: No space left on device\n"); // and no timings
  const auto left =
    program("/bin/sh",
            strings{"-c",
                    "trap '' PIPE; { while echo 2>/dev/null; do sleep 0.01; done; " // until the reader is gone
                    "\"$0\" \"$@\"; echo \"status $?\" >&2; } | true",
                    TROUPE_PROGRAM} +
              endless)
      .wait();
  CHECK(left.err == "status 141\n");
}

TEST_CASE("Opened files do not take the place of closed streams") {
  const auto result = redirected("<&- 2>&-",
                                 strings{"run", "Hello", "--max-tokens", "2", "--model", golden("llama-gqa")} + small);
  CHECK(result.status == 0);
  CHECK(result.out.size() > 1);
  const auto unread = redirected("<&-", strings{"tokenize", "-", "--model", golden("llama-gqa")});
  CHECK(unread.status == 1);
  CHECK(unread.err == "troupe: stdin: cannot be read: Bad file descriptor\n");
}

TEST_CASE("Files named by options must be regular files of limited size") {
  const temporary_folder folder;
  const auto file = (folder.path / "f").string();
  const auto config = [&] { return run_troupe({"tokenize", "hi", "--model", golden("llama-gqa"), "--config", file}); };
  const auto text = [&] { return run_troupe({"bench", "perplexity", "--model", golden("llama-gqa"), "--text", file}); };
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK(config().status == 2);
  CHECK(config().err == "troupe: " + file + ": is a named pipe, not a regular file\n");
  CHECK(text().status == 1);
  CHECK(last_line(text().err) == "troupe: " + file + ": is a named pipe, not a regular file\n");
  fs::remove(file);
  fs::create_symlink("/dev/zero", file);
  CHECK(config().err == "troupe: " + file + ": is a device, not a regular file\n");
  CHECK(last_line(text().err) == "troupe: " + file + ": is a device, not a regular file\n");
  fs::remove(file);
  folder.write("f", "x");
  fs::resize_file(file, std::uintmax_t(1) << 30);
  CHECK(config().err == "troupe: " + file + ": has 1.0 GiB, a configuration has at most 16.0 MiB\n");
  CHECK(last_line(text().err) == "troupe: " + file + ": has 1.0 GiB, a text has at most 256 MiB\n");
}
