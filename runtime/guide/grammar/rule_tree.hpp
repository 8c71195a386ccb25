// Grammars as people write them, parsed: named rules of sequences, choices and repetitions. Turned into a grammar,
// where whatever is regular becomes one terminal, however many rules it was written in.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

class rule_tree {
public:
  using node_id = std::uint32_t;

  explicit rule_tree(grammar& g) : g_(g) {}

  // -- construction --------------------------------------------------------------------

  node_id terminal(expression e);
  /// The rule need not be defined yet.
  node_id reference(const std::string& rule);
  /// A rule that is already in the grammar.
  node_id call(rule_id rule);
  node_id sequence(std::vector<node_id> parts);
  node_id choice(std::vector<node_id> parts);
  node_id repeat(node_id part, std::uint32_t least, std::uint32_t most);
  /// Throws failure(bad_request) if the rule has been defined.
  void define(const std::string& rule, node_id body);
  bool defined(const std::string& rule) const { return rules_.contains(rule) && rules_.at(rule).body != none; }

  /// The regular expression of a defined rule. Throws failure(bad_request) if it is not regular, naming it.
  expression regular(const std::string& rule);

  /// Adds all to the grammar; the rule of this name there. Throws failure(bad_request) for references to nowhere.
  rule_id emit(const std::string& root);

  grammar& target() { return g_; }

private:
  static constexpr node_id none = 0xFFFFFFFF;
  static constexpr expression unknown = 0xFFFFFFFF;
  enum class kind : std::uint8_t { terminal, reference, call, sequence, choice, repeat };
  enum class regularity : std::uint8_t { unknown, under_way, regular, recursive };
  struct node {
    kind what;
    expression match = unknown;      // terminal; once asked for, of whatever is regular
    std::string rule = {};           // reference
    rule_id called = 0;              // call
    std::vector<node_id> parts = {}; // of the others
    std::uint32_t least = 0, most = 0;
    regularity is = regularity::unknown; // under_way: not used
    std::vector<node_id> rest = {}; // of a choice that is not regular: the ways that are not, once `match` is known
  };
  struct rule {
    node_id body = none;
    regularity is = regularity::unknown;
    expression match = no_text;
    rule_id emitted = none;
  };

  node_id add(node n);
  bool is_regular(node_id n, int depth);
  bool rule_is_regular(const std::string& name, int depth);
  expression expression_of(node_id n);
  expression made_of(const node& n);
  void divide(node& choice);
  void emit(node_id n, rule_state from, rule_state to);
  rule_id emitted(const std::string& name);

  grammar& g_;
  std::vector<node> nodes_;
  std::map<std::string, rule> rules_;
  std::vector<std::string> todo_;
  int depth_ = 0;
};

} // namespace troupe::guides
