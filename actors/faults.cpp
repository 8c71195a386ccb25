#include "actors/faults.hpp"

#include "actors/fault_door.hpp"
#include "kernels/ops.hpp"

#include <caf/actor_system.hpp>
#include <caf/atom.hpp>
#include <caf/exit_reason.hpp>
#include <caf/message.hpp>

#include <new>
#include <string>
#include <system_error>

namespace troupe {

namespace {

using category = caf::atom_constant<caf::atom("troupe")>;

// The code of an exit reason of our category, without one bit.
constexpr std::uint8_t of_constructor = 0x80;
enum class kind : std::uint8_t { device = 1, lost_device, out_of_memory, internal };

errc code_of(kind what) {
  switch (what) {
    case kind::device:
    case kind::lost_device: return errc::device;
    case kind::out_of_memory: return errc::out_of_memory;
    case kind::internal: break;
  }
  return errc::internal;
}

struct cause {
  kind what;
  const char* sentence; // valid while the exception lives
};

cause cause_of(const std::exception_ptr& thrown) noexcept {
  try {
    std::rethrow_exception(thrown);
  } catch (const kernels::device_error& e) {
    return {e.context_lost ? kind::lost_device : kind::device, e.what()};
  } catch (const std::bad_alloc&) {
    return {kind::out_of_memory, "there is not enough memory"};
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again)
      return {kind::out_of_memory, "no thread can be started: memory or the number of processes is at its limit"};
    return {kind::internal, e.what()};
  } catch (const std::exception& e) {
    return {kind::internal, e.what()};
  } catch (...) {
    return {kind::internal, "something unknown was thrown"};
  }
}

bool is_kill(const std::exception_ptr& thrown) noexcept {
  try {
    std::rethrow_exception(thrown);
  } catch (const killed_on_purpose&) {
    return true;
  } catch (...) {
    return false;
  }
}

} // namespace

error error_of(const std::exception_ptr& thrown) noexcept {
  try {
    const auto [what, sentence] = cause_of(thrown);
    return {code_of(what), sentence, {}};
  } catch (const std::bad_alloc&) {
    return {errc::out_of_memory, "out of memory", {}}; // too short to need any
  }
}

caf::error exit_reason_of(const std::exception_ptr& thrown, bool at_work) noexcept {
  try {
    if (is_kill(thrown))
      return caf::exit_reason::kill;
    const auto [what, sentence] = cause_of(thrown);
    const auto code = static_cast<unsigned>(what) | (at_work ? 0 : of_constructor);
    return {static_cast<std::uint8_t>(code), category::value, caf::make_message(std::string(sentence))};
  } catch (const std::bad_alloc&) {
    return {}; // any other reason would need memory
  }
}

fault fault_of(const caf::error& reason, const caf::actor_system& system) {
  if (!reason)
    return {{errc::out_of_memory, "there is not enough memory", {}}, true};
  if (reason.category() != category::value || !reason.context().match_elements<std::string>())
    return {{errc::internal, "a part of the engine was ended: " + system.render(reason), {}}, true, false};
  const auto what = static_cast<kind>(reason.code() & ~of_constructor);
  const bool starting = (reason.code() & of_constructor) != 0;
  return {{code_of(what), reason.context().get_as<std::string>(0), {}}, what != kind::lost_device, !starting, starting};
}

} // namespace troupe
