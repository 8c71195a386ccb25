// What a step asks for: rows of the sequences that decode first, then chunks of prompts under way, then sequences that
// wait; and how clients with prompts share the rows. Reads the table, writes demands into the draft. Owned by the
// scheduler; single-threaded.
#pragma once

#include "runtime/scheduling/cost/step_budget.hpp"
#include "runtime/scheduling/planning/row_rules.hpp"
#include "runtime/scheduling/planning/sequence_table.hpp"
#include "runtime/scheduling/planning/slot_shares.hpp"
#include "runtime/scheduling/planning/step_draft.hpp"
#include "runtime/scheduling/planning/step_guesses.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace troupe {

class row_demands {
public:
  row_demands(const sequence_table& table, const row_rules& rules, const slot_shares& shares,
              const step_guesses& guesses, const step_cost& cost, step_budget& budget, step_draft& draft)
    : table_(table), rules_(rules), shares_(shares), guesses_(guesses), cost_(cost), budget_(budget), draft_(draft) {}

  /// Demands for all sequences that have no demand in this step yet.
  void of_all();

  void of(const scheduled_sequence& s, std::int32_t rows);

  /// The last rows of a group, all or none of which will be granted.
  void of_group(const sequence_group& g);

private:
  void of_tree(const scheduled_sequence& s, std::int32_t known, const guess_run& guesses);
  struct relative {
    const scheduled_sequence* of = nullptr;
    std::int32_t alike = 0; // first tokens of both
  };
  void of(const scheduled_sequence& s, std::int32_t rows, const relative& its);
  void add(block_demand d, const scheduled_sequence& s, const relative& its);
  relative relative_of(const scheduled_sequence& s) const;
  bool is_ready(const relative& its) const;
  bool only_its_group_runs(const scheduled_sequence& s) const;
  std::int32_t blocks_until_first_end() const;
  std::int32_t blocks_of_prompts() const;
  bool of_urgent_group();
  void of_decoding();
  void of_prompts(row_shares& shares);
  void of_waiting(row_shares& shares);
  row_shares divide_rows();
  std::int32_t clients_beside(const row_shares& shares, int priority) const;
  bool has_its_share(const fair_queue::turns& turns, const scheduled_sequence& s) const;
  std::int32_t fitting(const scheduled_sequence& s, std::int32_t rows) const;
  bool has_reserved_slot(const scheduled_sequence& s) const { return s.grouped() && table_.slots_needed(s) == 0; }
  std::int32_t slots_left() const { return table_.free_slots() - draft_.slots_promised(); }

  const sequence_table& table_;
  const row_rules& rules_;
  const slot_shares& shares_;
  const step_guesses& guesses_;
  const step_cost& cost_;
  step_budget& budget_;
  step_draft& draft_;
  std::int32_t blocks_of_new_ = 0;                          // that those which are to start now will lack still
  std::map<std::string, std::uint64_t, std::less<>> turns_; // of clients, where a step has too few rows for all
};

} // namespace troupe
