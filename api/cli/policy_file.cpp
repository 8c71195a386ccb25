#include "api/cli/policy_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <toml++/toml.h>

#include <limits>

namespace troupe::cli {

namespace {

class policy_reader {
public:
  explicit policy_reader(const std::string& file) : file_(file) {}

  server_policy read() {
    const auto content = read_file(file_, files::configuration);
    toml::table root;
    try {
      root = toml::parse(content);
    } catch (const toml::parse_error& e) {
      refuse(e.source().begin, std::string(e.description()));
    }
    server_policy result;
    result.of_all = rules_of(root, "", true);
    if (const auto* keys = root.get("key"))
      for (const auto& [name, section] : table_of(*keys, "key"))
        result.of_key.emplace(
          std::string(name.str()),
          rules_of(table_of(section, "key." + std::string(name.str())), "key." + std::string(name.str()) + '.', false));
    return result;
  }

private:
  [[noreturn]] void refuse(const toml::source_position& at, const std::string& why) const {
    throw failure(errc::bad_request, file_ + ": line " + std::to_string(at.line) + ": " + why);
  }

  const toml::table& table_of(const toml::node& node, const std::string& name) const {
    if (const auto* table = node.as_table())
      return *table;
    refuse(node.source().begin, '`' + name + "` must be a section");
  }

  policy_rules rules_of(const toml::table& from, const std::string& prefix, bool has_keys) const {
    policy_rules result;
    for (const auto& [key, node] : from) {
      const std::string name(key.str());
      if (name == "banned")
        result.banned = texts(node, prefix + name);
      else if (name == "logit_bias")
        result.logit_bias = biases_of(node, prefix + name);
      else if (name == "max_temperature")
        result.max_temperature = static_cast<float>(number(node, prefix + name));
      else if (name == "max_tokens")
        result.max_tokens = whole(node, prefix + name, 1);
      else if (name == "min_priority")
        result.min_priority = whole(node, prefix + name, -1'000'000);
      else if (name == "max_requests")
        result.max_requests = whole(node, prefix + name, 1);
      else if (name == "tokens_per_minute")
        result.tokens_per_minute = whole(node, prefix + name, 1);
      else if (name != "key" || !has_keys)
        refuse(key.source().begin,
               "unknown key `" + prefix + name +
                 "`; a policy has `banned`, `logit_bias`, `max_temperature`, `max_tokens`, `min_priority`, "
                 "`max_requests`, `tokens_per_minute` and sections [key.NAME]");
      try {
        check_rules(result);
      } catch (const failure& f) {
        refuse(key.source().begin, f.what_failed().message);
      }
    }
    return result;
  }

  std::vector<std::string> texts(const toml::node& node, const std::string& name) const {
    const auto* list = node.as_array();
    if (!list)
      refuse(node.source().begin, '`' + name + "` must be a list of texts");
    std::vector<std::string> result;
    for (const auto& item : *list) {
      const auto text = item.value_exact<std::string>();
      if (!text)
        refuse(item.source().begin, '`' + name + "` must be a list of texts");
      result.push_back(*text);
    }
    return result;
  }

  std::vector<std::pair<std::string, float>> biases_of(const toml::node& node, const std::string& name) const {
    const auto* table = node.as_table();
    if (!table)
      refuse(node.source().begin, '`' + name + "` must map ids of tokens, or texts, to numbers");
    std::vector<std::pair<std::string, float>> result;
    for (const auto& [what, bias] : *table)
      result.emplace_back(std::string(what.str()), static_cast<float>(number(bias, name)));
    return result;
  }

  double number(const toml::node& node, const std::string& name) const {
    if (!node.is_integer() && !node.is_floating_point())
      refuse(node.source().begin, '`' + name + "` must be a number");
    return *node.value<double>();
  }

  int whole(const toml::node& node, const std::string& name, std::int64_t least) const {
    const auto value = node.value_exact<std::int64_t>();
    if (!value || *value < least || *value > std::numeric_limits<int>::max())
      refuse(node.source().begin, '`' + name + "` must be a whole number of at least " + std::to_string(least));
    return static_cast<int>(*value);
  }

  const std::string& file_;
};

} // namespace

server_policy read_policy(const std::string& file) { return policy_reader(file).read(); }

} // namespace troupe::cli
