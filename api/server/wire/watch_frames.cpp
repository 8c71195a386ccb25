#include "api/server/wire/watch_frames.hpp"

#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/technique.hpp"

#include <array>

namespace troupe {

namespace {

/// Names of lanes' spans in a trace, by step_lane::kind.
constexpr auto span_names = std::to_array<std::string_view>({"decode", "prefill", "waits for blocks", "mask",
                                                             "waits for its ", "waits for its turn", "in the queue",
                                                             "preempted", "paused by its reader"});

std::string name_of_span(step_lane::kind what) {
  return std::string(span_names[static_cast<std::size_t>(what)]) +
    (what == step_lane::kind::judge ? names_of_judges() : "");
}

double milliseconds_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double, std::milli>(time.time_since_epoch()).count();
}

/// Most numbers of a step are 0, and are left out.
void add_count(json_object& to, std::string_view name, std::uint64_t value) {
  if (value > 0)
    to.number(name, value);
}

json_object step_counts(const step_record& r) {
  json_object o;
  add_count(o, "decode", r.rows.decode);
  add_count(o, "prefill", r.rows.prefill);
  add_count(o, "kept", r.rows.guesses_kept);
  add_count(o, "lost", r.rows.guesses_lost);
  add_count(o, "forced", r.rows.forced);
  add_count(o, "granted", r.blocks.granted);
  add_count(o, "copied", r.blocks.copied);
  add_count(o, "evicted", r.blocks.evicted);
  add_count(o, "swapped_out", r.blocks.swapped_out);
  add_count(o, "swapped_in", r.blocks.swapped_in);
  add_count(o, "running", r.sequences.running);
  add_count(o, "waiting", r.sequences.waiting);
  add_count(o, "paused", r.sequences.paused);
  add_count(o, "without_blocks", r.waits.blocks);
  add_count(o, "preempted", r.waits.preempted);
  add_count(o, "without_masks", r.waits.masks);
  add_count(o, "at_judge", r.waits.judge);
  return o;
}

std::string step_json(const step_record& r) {
  json_object o;
  o.number("step", r.step).number("replica", r.replica).number("end_ms", milliseconds_of(r.end)).number("ms", r.ms);
  if (r.stage_ms.size() > 1) {
    std::vector<std::string> stages;
    for (const auto ms : r.stage_ms)
      stages.push_back(json_number(ms));
    o.list("stage_ms", stages);
  }
  o.members_of(step_counts(r));
  std::vector<std::string> lanes, copies;
  for (const auto& lane : r.lanes)
    lanes.push_back(json_list(std::vector<std::string>{
      std::to_string(lane.sequence.request), std::to_string(lane.sequence.index), json_text(name_of(lane.what)),
      std::to_string(lane.rows), std::to_string(lane.position)}));
  if (!lanes.empty())
    o.list("lanes", lanes);
  for (const auto block : r.copies)
    copies.push_back(std::to_string(block));
  if (!copies.empty())
    o.list("copies", copies);
  if (!r.remark.empty())
    o.text("remark", to_utf8(r.remark));
  return o.str();
}

std::string named(std::string_view what, int replica, std::uint64_t track, const std::string& name) {
  return json_object()
    .text("ph", "M")
    .text("name", what)
    .number("pid", replica)
    .number("tid", track)
    .object("args", json_object().text("name", name))
    .str();
}

/// A span of a trace, with times in microseconds.
json_object span_of(const step_record& r, std::uint64_t track, std::string_view name) {
  json_object o;
  o.text("ph", "X")
    .text("name", name)
    .number("pid", r.replica)
    .number("tid", track)
    .number("ts", 1000 * (milliseconds_of(r.end) - r.ms))
    .number("dur", 1000 * r.ms);
  return o;
}

} // namespace

std::string watch_frame(std::string_view id, const step_ring::taken& steps, const engine_snapshot& now) {
  std::vector<std::string> records, replicas, actors;
  for (const auto& record : steps.records)
    records.push_back(step_json(*record));
  for (const auto& r : now.replicas) {
    json_object of;
    of.number("number", r.number).number("restarts", r.restarts).number("blocks", r.blocks).text("map", r.map);
    if (r.role != replica_role::any)
      of.text("role", r.role == replica_role::prefill ? "prefill" : "decode");
    replicas.push_back(of.str());
  }
  for (const auto& a : now.actors)
    actors.push_back(json_object()
                       .text("kind", a.kind)
                       .number("alive", a.alive)
                       .number("spawned", a.spawned)
                       .number("handled", a.handled)
                       .number("queued", a.queued)
                       .number("waiting_ms", a.waiting_ms)
                       .str());
  return json_object()
    .text("type", "watch")
    .text("id", id)
    .number("now_ms", milliseconds_of(std::chrono::steady_clock::now()))
    .number("lost", steps.lost)
    .list("steps", records)
    .list("replicas", replicas)
    .list("actors", actors)
    .str();
}

std::string trace_writer::beginning() { return std::exchange(begun_, true) ? "" : R"({"traceEvents":[)"; }

std::string trace_writer::add(std::span<const step_ring::record_ptr> steps) {
  std::vector<std::string> events;
  for (const auto& record : steps)
    add(*record, events);
  auto text = beginning();
  for (const auto& one : events)
    text += (std::exchange(has_events_, true) ? "," : "") + one;
  return text;
}

std::string trace_writer::end() { return beginning() + R"(],"displayTimeUnit":"ms"})"; }

void trace_writer::add(const step_record& r, std::vector<std::string>& events) {
  if (replicas_.insert(r.replica).second) {
    events.push_back(named("process_name", r.replica, 0, "replica " + std::to_string(r.replica)));
    events.push_back(named("thread_name", r.replica, 0, "steps"));
  }
  events.push_back(span_of(r, 0, "step " + std::to_string(r.step)).object("args", step_counts(r)).str());
  for (const auto& lane : r.lanes) {
    const auto [at, fresh] = tracks_.try_emplace({r.replica, lane.sequence}, tracks_.size() + 1);
    if (fresh)
      events.push_back(named("thread_name", r.replica, at->second,
                             "request " + std::to_string(lane.sequence.request) +
                               (lane.sequence.index ? "." + std::to_string(lane.sequence.index) : "")));
    events.push_back(span_of(r, at->second, name_of_span(lane.what))
                       .object("args", json_object().number("rows", lane.rows).number("position", lane.position))
                       .str());
  }
}

} // namespace troupe
