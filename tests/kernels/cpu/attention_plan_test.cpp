#include "kernels/cpu/attention_plan.hpp"
#include "kernels/cpu/attention_stretches.hpp"
#include "tests/kernels/cpu/prompt_pieces.hpp"
#include "tests/kernels/support.hpp"

#include <map>
#include <set>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr int partition_blocks = partition_tokens / block_tokens;

/// Sequences with randomly branching block tables.
struct random_batch {
  std::vector<sequence_rows> sequences;
  std::vector<std::int32_t> tables;

  explicit random_batch(generator& random) {
    int next_block = 0;
    const int count = 1 + random.below(20);
    for (int i = 0; i < count; ++i) {
      const int rows = random.below(4) == 0 ? 1 + random.below(100) : 1 + random.below(4);
      const int position = random.below(2000);
      const int blocks = (position + rows + block_tokens - 1) / block_tokens;
      std::vector<std::int32_t> table;
      if (i > 0 && random.below(3) > 0) {
        const auto& from = sequences[random.below(i)];
        const int shared = std::min(from.first_position, position) / block_tokens;
        const int common = shared == 0 ? 0 : random.below(shared + 1);
        table.assign(tables.begin() + from.first_block, tables.begin() + from.first_block + common);
      }
      while (static_cast<int>(table.size()) < blocks)
        table.push_back(next_block++);
      const int first_row = sequences.empty() ? 0 : sequences.back().first_row + sequences.back().rows;
      sequences.push_back({first_row, rows, position, static_cast<int>(tables.size())});
      tables.insert(tables.end(), table.begin(), table.end());
    }
  }
  batch view() const { return {sequences, tables}; }
};

} // namespace

TEST_CASE("an attention plan covers every partition of every query once, in order, in separate slots") {
  generator random(31);
  int parting = 0;
  for (int round = 0; round < 300; ++round) {
    const random_batch who(random);
    const auto view = who.view();
    const attention_shape shape{1 + random.below(3), 1 + random.below(8), random.below(2) * (1 + random.below(3000)),
                                std::vector{6, 12, 32}[random.below(3)]};
    attention_plan plan(1 + random.below(4));
    plan.make(shape, view);

    // The partitions that runs have seen, by slot; or all of them in a piece that finishes.
    std::map<std::size_t, std::pair<int, std::vector<int>>> slots; // first slot of a run -> run, partitions
    std::map<int, std::vector<int>> finished;
    std::set<std::size_t> used;
    for (const auto& piece : plan.pieces()) {
      int before = 0;
      const auto runs = plan.runs_of(piece);
      for (const int run : runs) {
        const auto& r = plan.run(run);
        for (int p = 0; p < piece.partitions; ++p) {
          const int partition = piece.first_partition + p;
          if (piece.finish) {
            finished[run].push_back(partition);
            continue;
          }
          const std::size_t slot = piece.slot + before + std::size_t(piece.fold ? 0 : p) * piece.queries;
          slots[slot].first = run;
          slots[slot].second.push_back(partition);
          if (piece.fold && p > 0)
            continue;
          for (int head = 0; head < shape.kv_heads; ++head)
            for (int q = 0; q < r.count; ++q)
              CHECK(used.insert(slot + q + head * piece.head_slots).second);
        }
        // Runs of a piece read the same blocks, or at least the first ones of a partition.
        const auto* blocks = who.tables.data() + r.sequence->first_block + piece.first_partition * partition_blocks;
        const auto* others = who.tables.data() + plan.run(runs[0]).sequence->first_block +
          piece.first_partition * partition_blocks;
        if (piece.parting)
          CHECK(piece.partitions == 1);
        if (runs.size() > 1)
          CHECK(std::equal(blocks, blocks + (piece.parting ? 4 : piece.partitions * partition_blocks), others));
        parting += piece.parting && runs.size() > 2;
        before += r.count;
      }
      CHECK(before == piece.queries);
    }
    CHECK((used.empty() || *used.rbegin() < plan.slots()));
    for (const auto& merge : plan.merges())
      for (std::size_t i = 0; i < merge.parts; ++i) {
        const auto& part = slots.at(plan.part(merge.first_part + i).slot);
        CHECK(part.first == merge.run);
        CHECK((i == 0 || part.second.size() == 1)); // a fold must be the part that all others are merged into
        finished[merge.run].insert(finished[merge.run].end(), part.second.begin(), part.second.end());
      }

    std::size_t queries = 0;
    for (const auto& [run, partitions] : finished) {
      const auto& r = plan.run(run);
      queries += r.count;
      const int first = r.sequence->first_position + r.first / shape.group;
      const int last = r.sequence->first_position + (r.first + r.count - 1) / shape.group;
      std::vector<int> want;
      for (int p = shape.window > 0 ? std::max(0, first + 1 - shape.window) / partition_tokens : 0;
           p <= last / partition_tokens; ++p)
        want.push_back(p);
      CHECK(partitions == want);
    }
    std::size_t rows = 0;
    for (const auto& s : who.sequences)
      rows += s.rows;
    CHECK(queries == rows * shape.group);
  }
  CHECK(parting > 100);
}

TEST_CASE("an attention plan reads shared partitions once, also when sequences branch") {
  // Three sequences share two partitions, two of them one more.
  std::vector<std::int32_t> tables;
  std::vector<sequence_rows> sequences;
  for (int i = 0; i < 3; ++i) {
    sequences.push_back({i, 1, 4 * partition_tokens - 1, static_cast<int>(tables.size())});
    for (int b = 0; b < 4 * partition_blocks; ++b)
      tables.push_back(b < 2 * partition_blocks || (b < 3 * partition_blocks && i > 0) ? b : 1000 * (i + 1) + b);
  }
  attention_plan plan(1);
  const batch who{sequences, tables};
  plan.make({8, 4, 0, 32}, who);
  std::vector<std::vector<int>> found; // runs, first partition, partitions
  for (const auto& piece : plan.pieces())
    found.push_back({static_cast<int>(piece.members), piece.first_partition, piece.partitions});
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::vector<int>>{{1, 2, 2}, {1, 3, 1}, {1, 3, 1}, {2, 2, 1}, {3, 0, 2}});
}

TEST_CASE("an attention plan reads the first blocks of a partition once, of which sequences share no more") {
  // Four sequences: 250 common tokens; two have 300 more of their own, one 3; the last one begins otherwise.
  std::vector<std::int32_t> tables;
  std::vector<sequence_rows> sequences;
  for (const int position : {549, 252, 549, 252}) {
    const int i = static_cast<int>(sequences.size()), blocks = position / block_tokens + 1;
    sequences.push_back({i, 1, position, static_cast<int>(tables.size())});
    for (int b = 0; b < blocks; ++b)
      tables.push_back(b < 15 && i < 3 ? b : 1000 * (i + 1) + b);
  }
  attention_plan plan(1);
  const batch who{sequences, tables};
  plan.make({8, 4, 0, 32}, who);
  std::vector<std::vector<int>> found; // runs, first partition, partitions, parting, finish
  for (const auto& piece : plan.pieces())
    found.push_back(
      {static_cast<int>(piece.members), piece.first_partition, piece.partitions, piece.parting, piece.finish});
  std::ranges::sort(found);
  CHECK(found == std::vector<std::vector<int>>{{1, 0, 1, 0, 1}, {1, 1, 2, 0, 0}, {1, 1, 2, 0, 0}, {3, 0, 1, 1, 0}});
  attention_plan threads(8);
  threads.make({8, 4, 0, 4}, who);
  int alone = 0; // a piece each, so that threads finish together
  for (const auto& piece : threads.pieces())
    alone += piece.parting && piece.members == 1;
  CHECK(alone == 3);
}

TEST_CASE("queries read the blocks of a partition once, in order, and together with all neighbours that have them") {
  generator random(47);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<std::int32_t>> tables;
    for (int i = 1 + random.below(10); i > 0; --i) {
      auto& table = tables.emplace_back();
      for (int b = 1 + random.below(16); b > 0; --b)
        table.push_back(random.below(8) == 0 || table.empty() ? random.below(2) : table.back() + 2);
    }
    std::ranges::sort(tables);
    std::vector<table_reader> readers;
    for (const auto& table : tables)
      readers.push_back({table.data(), 1 + random.below(3), static_cast<int>(table.size())});
    std::vector<attention_stretch> stretches;
    add_stretches(readers, stretches);
    std::size_t read = 0;
    std::set<std::vector<std::int32_t>> prefixes;
    for (const auto& s : stretches)
      read += static_cast<std::size_t>(s.last - s.first);
    for (std::size_t i = 0, first = 0; i < readers.size(); first += std::size_t(readers[i++].queries)) {
      std::vector<std::int32_t> seen;
      int ends = 0;
      for (const auto& s : stretches)
        if (s.first_query <= static_cast<int>(first) && static_cast<int>(first) < s.first_query + s.queries) {
          CHECK(s.first_query + s.queries >= static_cast<int>(first) + readers[i].queries);
          CHECK(ends == 0);
          CHECK(s.first == static_cast<int>(seen.size()));
          seen.insert(seen.end(), s.blocks + s.first, s.blocks + s.last);
          ends += s.end;
        }
      CHECK(ends == 1);
      CHECK(seen == tables[i]);
      for (std::size_t b = 1; b <= seen.size(); ++b)
        prefixes.insert({seen.begin(), seen.begin() + std::ptrdiff_t(b)});
    }
    CHECK(read == prefixes.size());
  }
}

TEST_CASE("a prompt's queries pass over what they see in tiles, half of all scores, and a block beyond at most") {
  const testing::prompt_shape shape;
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    const auto plan = testing::on_cpu(shape, 16, threads);
    CHECK(plan.rows == shape.tokens);
    CHECK(plan.kv == 64 * 65 / 2 * 16); // 64 tiles, and what their last queries see
    CHECK(plan.scores == 16 * plan.kv);
    const auto tiled = testing::by_tiles(shape, sizeof(float), plan.kv, plan.scores, partition_tokens),
               passes = testing::three_passes(shape, sizeof(float));
    CHECK(tiled.operations / passes.operations < 0.52);
    CHECK(tiled.bytes / passes.bytes < 1.01); // from caches: a head's K and V stay there from tile to tile
  }
}
