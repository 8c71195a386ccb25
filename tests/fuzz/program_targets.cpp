// What the program's user, or a hub, writes: configuration, policies, keys, lines of batch files, answers of a hub.
#include "api/cli/batch_lines.hpp"
#include "api/cli/config_file.hpp"
#include "api/cli/policy_file.hpp"
#include "api/http/key_ring.hpp"
#include "api/hub/repository.hpp"
#include "api/hub/url.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/text/utf8.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <CLI/CLI.hpp>

namespace troupe::test {

namespace {

std::string toml(std::string_view input) {
  CLI::App root;
  auto* serve = root.add_subcommand("serve");
  auto* bench = root.add_subcommand("bench")->add_subcommand("model");
  for (auto* command : {serve, bench})
    command->add_option("--threads");
  serve->add_option("--stop")->take_all();
  serve->add_flag("--raw");
  bench->add_option("--batch");
  const auto file = fuzz_file("config.toml", input).string();
  std::size_t line = 0;
  for (const auto& argument : cli::config_arguments(file, root, *serve)) {
    if (!argument.text.starts_with("--"))
      broken("a configuration's argument that is no flag");
    line = std::max(line, argument.line);
  }
  return "read " + std::to_string(std::min<std::size_t>(line, 9));
}

texts toml_seeds() {
  return {"threads = 2\nraw = true\n[serve]\nstop = [\"a\", 'b', \"\"\"c\nd\"\"\", 1.5, -0x1f]\n[bench.model]\nbatch = "
          "\"1,2\"\n",
          "# x\nserve.threads = 1_000\n\"stop\" = [1979-05-27T07:32:00Z, nan, +inf, \"\\u00e9\"]\n[[serve]]\n",
          "bench = { model = { batch = [] } }\n"};
}

std::string policy(std::string_view input) {
  const auto read = cli::read_policy(fuzz_file("policy.toml", input).string());
  check_rules(read.of_all);
  for (const auto& [name, rules] : read.of_key)
    check_rules(rules);
  banned_by_policy banned(read);
  return "read " + std::to_string(std::min<std::size_t>(read.of_key.size(), 3));
}

texts policy_seeds() {
  return {
    "banned = [\"a\", \"bc\"]\nmax_temperature = 1.5\nmax_tokens = 100\nmin_priority = -3\n[logit_bias]\n5 = -100\n"
    "\" the\" = 1.5\n[key.alice]\nbanned = []\nmax_tokens = 5\n[key.\"b c\"]\nlogit_bias = { x = 2 }\n"};
}

std::string keys(std::string_view input) {
  const auto file = fuzz_file("keys", input);
  for (const auto& [name, key] : read_keys(file))
    if (name.empty() || key.empty())
      broken("a key without a name, or a name without a key");
  return "read " + refusal_of([&] { read_key(file); });
}

texts key_seeds() { return {"# names\nalice=secret-1\n\nalice = secret-2\r\nbob=\xc3\xa9\n", "only-a-key\n"}; }

std::string batch(std::string_view input) {
  const auto id = cli::custom_id_of(input);
  cli::may_be_answer(input);
  std::string line;
  const auto why = refusal_of([&] {
    const auto request = cli::parse_batch_line(input);
    if (request.custom_id != id)
      broken("a request of another id than its line");
    line = cli::answered_line(request.custom_id, 200, "{}");
  });
  if (line.empty())
    line = cli::invalid_line(id, {errc::bad_request, why, {}});
  json::document::parse(line, "an answer", errc::internal);
  return why + (line.ends_with('\n') ? "" : " in no line");
}

texts batch_seeds() {
  return {
    R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}]}})",
    R"({"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"request_id":"b","body":{}},"error":null})"};
}

/// The listing of a repository; behind it an address, and one that redirects there.
std::string hub_answer(std::string_view input) {
  auto outcome = refusal_of([&] {
    const auto listed = hub::parse_repository(first_part(input), "the hub's answer");
    for (const auto& file : listed.files)
      if (file.path.starts_with('/') || ("/" + file.path + "/").find("/../") != std::string::npos)
        broken("a path that leads out of its folder");
    for (const auto* format : {"", "Q4_K_M"})
      refusal_of([&] { hub::select_files(listed, "org/name", format); });
  });
  if (const auto address = part_of(input, "address"))
    outcome += refusal_of([&] {
      const auto url = hub::parse_url(*address);
      if (url.host.empty() || !url.target.starts_with('/'))
        broken("an address without a host or a target");
      if (url.host.find_first_of("\r\n ") != url.host.npos || url.target.find_first_of("\r\n ") != url.target.npos)
        broken("an address that adds lines to a request");
      const auto other = hub::resolve(url, part_of(input, "location").value_or("../x"));
      if (other.host.empty() || other.target.find_first_of("\r\n ") != url.target.npos)
        broken("a redirect that adds lines to a request");
    });
  if (const auto name = part_of(input, "name"))
    outcome += refusal_of([&] { hub::parse_model_request(*name, "https://huggingface.co"); });
  return outcome;
}

texts hub_seeds() {
  return {
    R"({"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[{"rfilename":"config.json","size":10,"blobId":)"
    R"("0123456789abcdef0123456789abcdef01234567"},{"rfilename":"a/model-Q4_K_M-00001-of-00002.gguf","size":99,"lfs":)"
    R"({"sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":99}},)"
    R"({"rfilename":"model.safetensors","size":5}]})"
    "\n=== address\nhttps://u:p%40@[::1]:8080/a/b?c=d\n=== location\n//other/../x\n=== "
    "name\nhf.co/org/name:Q4_K_M@main"};
}

} // namespace

std::vector<fuzz_target> program_targets() {
  return {{"toml", toml, toml_seeds},
          {"policy", policy, policy_seeds},
          {"keys", keys, key_seeds},
          {"batch", batch, batch_seeds},
          {"hub", hub_answer, hub_seeds}};
}

} // namespace troupe::test
