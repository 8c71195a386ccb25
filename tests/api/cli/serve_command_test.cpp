// `troupe serve` and configuration files as users run them, on the golden checkpoints.
#include "runtime/support/json/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <regex>

using namespace troupe::test;
namespace json = troupe::json;

TEST_CASE("a configuration file stands for flags, and the command line wins") {
  const temporary_folder folder;
  const auto file = folder.write("x.toml",
                                 "model = \"" + golden("llama-mha-tied") +
                                   "\"\nthreads = 1\n"
                                   "[bench.model]\nprompt = 8\ngenerate = 2\nbatch = \"2\"\n"
                                   "repeat = 1\njson = true\n"
                                   "[serve]\nport = 1\n");
  const auto result = run_troupe({"bench", "model", "--config", file, "--generate", "3"});
  CHECK(result.status == 0);
  const auto object = json::document::parse(result.out, "bench");
  CHECK(std::int64_t(object.root()["prompt"]) == 8);
  CHECK(std::int64_t(object.root()["generate"]) == 3);
  CHECK(std::int64_t(object.root()["batch"]) == 2);
}

TEST_CASE("an error in a configuration file names the file and the line, with exit status 2") {
  const temporary_folder folder;
  const auto unknown = folder.write("a.toml", "treads = 2\n"), wrong = folder.write("b.toml", "threads = \"two\"\n");
  const auto with = [](const std::string& file) { return run_troupe({"run", "hi", "--config", file}); };
  const auto first = with(unknown), second = with(wrong), third = with("/nowhere.toml");
  CHECK(first.status == 2);
  CHECK(only_line(first.err) == "troupe: " + unknown + ": line 1: unknown key `treads`");
  CHECK(second.status == 2);
  CHECK(only_line(second.err) ==
        "troupe: " + wrong + ": line 1: --threads: must be an integer from 0 to 1024, found `two`");
  const auto share = with(folder.write("d.toml", "# sparse\nsparsity = \"nan\"\n"));
  CHECK(share.status == 2);
  CHECK(only_line(share.err).find("d.toml: line 2: --sparsity: ") != std::string::npos);
  CHECK(third.status == 2);
  CHECK(only_line(third.err) == "troupe: /nowhere.toml: no such file");
}

TEST_CASE("every bundled configuration is valid for every command") {
  const temporary_folder folder;
  const auto nowhere = (folder.path / "no-model").string();
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_CONFIGS)) {
    if (entry.path().extension() != ".toml")
      continue;
    INFO(entry.path().string());
    const std::vector<strings> commands{{"run", "hi"}, {"chat"}, {"serve"}, {"tokenize", "hi"}, {"bench", "model"}};
    for (const auto& command : commands) {
      const bool serves = command.front() == "serve";
      const auto parsed = run_troupe(command + strings{"--config", entry.path().string(), "--model", nowhere} +
                                     (serves ? strings{"--host", "127.0.0.1", "--port", "0"} : strings{}));
      INFO(parsed.err);
      CHECK(parsed.status == 1); // it was parsed, and the model is missing
    }
    ++files;
  }
  CHECK(files >= 3);
}

TEST_CASE("every bundled configuration starts a server of the bundled model, or says which device is missing") {
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_CONFIGS)) {
    if (entry.path().extension() != ".toml")
      continue;
    INFO(entry.path().string());
    program server(TROUPE_PROGRAM,
                   {"serve", "--config", entry.path().string(), "--host", "127.0.0.1", "--port", "0", "--threads",
                    "2"}); // some need two
    const bool serves = server.prints(" info ready url=");
    server.signal(SIGTERM);
    const auto result = server.wait();
    INFO(result.err);
    if (!serves && entry.path().filename() == "hybrid.toml") { // of a machine with a GPU
      CHECK(result.status == 1);
      CHECK(result.err.find(" error there is no device `cuda:0`") != std::string::npos);
      continue;
    }
    if (!serves && entry.path().filename() == "together.toml") { // of models from the hub
      CHECK(result.status == 1);
      CHECK(result.err.find(" error there is no model `Qwen/Qwen3-0.6B` on this machine") != std::string::npos);
      continue;
    }
    CHECK(serves);
    CHECK(result.status == 0);
  }
}

TEST_CASE("serve listens for other machines only with a key or --allow-anonymous") {
  const strings everywhere = strings{"serve", "--host", "0.0.0.0", "--port", "0", "--model", golden("llama-gqa")} +
    small;
  const auto refused = run_troupe(everywhere);
  CHECK(refused.status == 2);
  CHECK(refused.out.empty());
  CHECK(only_line(refused.err) ==
        "troupe: other machines could use this server, as --host is 0.0.0.0 and there is no API key: give one with "
        "--api-key-file (or in TROUPE_API_KEY), or let everybody in with --allow-anonymous");
  const auto started = [&](const strings& more) {
    program server(TROUPE_PROGRAM, everywhere + more);
    CHECK(server.prints("curl -N http://127.0.0.1:")); // which can be pasted
    server.signal(SIGTERM);
    const auto result = server.wait();
    CHECK(result.status == 0);
    CHECK(std::regex_match(
      result.out, std::regex("Listening on http://0\\.0\\.0\\.0:[0-9]+ \\(all addresses of this machine\\)\n")));
    return result.err.find("everyone who can reach this address can use the server") != std::string::npos;
  };
  CHECK(started({"--allow-anonymous"}));
  CHECK(!started({"--api-key", "secret"}));
  const temporary_folder folder;
  CHECK(!started({"--api-key-file", folder.write("key", "secret\n")}));
  CHECK(!started({"--api-keys", folder.write("keys", "alice=secret\n")}));
  const auto wrong = run_troupe(everywhere + strings{"--api-keys", folder.write("wrong", "secret\n")});
  CHECK(wrong.status == 1);
  CHECK(only_line(wrong.err).ends_with("wrong: line 1: a line must be `name=key`"));
}

TEST_CASE("faults are injected on this machine's addresses alone, never by a configuration file, and serve says so") {
  const strings serve = strings{"serve", "--port", "0", "--model", golden("llama-gqa")} + small;
  const auto refused = run_troupe(serve + strings{"--fault-injection", "--host", "0.0.0.0", "--api-key", "secret"});
  CHECK(refused.status == 2);
  CHECK(only_line(refused.err) ==
        "troupe: --fault-injection lets clients make parts of the server fail, so --host must be an address of this "
        "machine alone, as 127.0.0.1, which 0.0.0.0 is not");
  const temporary_folder folder;
  const auto file = folder.write("a.toml", "[serve]\nfault-injection = true\n");
  const auto configured = run_troupe(serve + strings{"--config", file});
  CHECK(configured.status == 2);
  CHECK(only_line(configured.err) == "troupe: " + file + ": line 2: unknown key `serve.fault-injection`");
  program server(TROUPE_PROGRAM, serve + strings{"--fault-injection"});
  REQUIRE(server.prints("clients may make parts of this server fail (--fault-injection)"));
  server.signal(SIGTERM);
  CHECK(server.wait().status == 0);
}

TEST_CASE("serve prints its URL at once, and ends with status 0 on SIGINT and SIGTERM") {
  for (const int number : {SIGINT, SIGTERM}) {
    program server(TROUPE_PROGRAM, strings{"serve", "--port", "0", "--model", golden("llama-gqa")} + small);
    REQUIRE(server.prints("Listening on http://127.0.0.1:"));
    REQUIRE(server.prints("curl -N http://127.0.0.1:"));
    server.signal(number);
    const auto result = server.wait();
    INFO(result.err);
    CHECK(result.status == 0);
    CHECK(only_line(result.out).starts_with("Listening on http://127.0.0.1:"));
  }
}

TEST_CASE("the log has one format and the level that was asked for, and a failure once") {
  const strings fails{"serve", "--port", "0", "--model", "/nowhere"};
  const auto warned = run_troupe(fails + strings{"--log-level", "warn"});
  CHECK(warned.status == 1);
  CHECK(std::regex_match(only_line(warned.err), std::regex("\\S+ error .*/nowhere.*")));
  const auto as_json = run_troupe(fails + strings{"--log-level", "error", "--log-format", "json"});
  CHECK(as_json.status == 1);
  const auto line = json::document::parse(only_line(as_json.err), "the log");
  CHECK(std::string_view(line.root()["level"]) == "error");
  CHECK(std::string_view(line.root()["message"]).find("/nowhere") != std::string_view::npos);
  CHECK(only_line(run_troupe(fails + strings{"--log-level", "off"}).err).starts_with("troupe: "));

  const auto served = [](const strings& more) {
    program server(TROUPE_PROGRAM, strings{"serve", "--port", "0", "--model", golden("llama-gqa")} + small + more);
    REQUIRE(server.prints("Listening on "));
    if (more.back() == "info" || more.back() == "json")
      REQUIRE(server.prints("kv_cache"));
    server.signal(SIGTERM);
    auto result = server.wait();
    CHECK(result.status == 0);
    return result.err;
  };
  CHECK(served({"--log-level", "warn"}) == "");
  const auto text = served({"--log-level", "info"});
  const std::regex form("(\\S+T\\S+ (info|warn) .*\n)+");
  CHECK(std::regex_match(text, form));
  CHECK(text.find(" tokens per sequence") != std::string::npos);
  CHECK(text.find("KV cache") != std::string::npos);
  const auto objects = served({"--log-level", "info", "--log-format", "json"});
  CHECK(objects.find("tokens per sequence") != std::string::npos);
  CHECK(objects.find("\"context\":") != std::string::npos);
}

TEST_CASE("serve ends with a sentence if the port is in use") {
  program server(TROUPE_PROGRAM, strings{"serve", "--port", "0", "--quiet", "--model", golden("llama-gqa")} + small);
  REQUIRE(server.prints("\n"));
  const auto line = server.out();
  const auto port = line.substr(line.rfind(':') + 1, line.size() - line.rfind(':') - 2);
  const auto second = run_troupe(strings{"serve", "--quiet", "--port", port, "--model", golden("llama-gqa")} + small);
  CHECK(second.status == 1);
  CHECK(only_line(second.err).starts_with("troupe: "));
  CHECK(second.err.find(port) != std::string::npos);
}
