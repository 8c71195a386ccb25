#include "actors/faults.hpp"

#include "kernels/ops.hpp"

#include <caf/actor_system.hpp>
#include <caf/atom.hpp>
#include <caf/message.hpp>

#include <new>
#include <string>

namespace troupe {

namespace {

using category = caf::atom_constant<caf::atom("troupe")>;

// What a reason of our category says in its code.
enum class kind : std::uint8_t { device = 1, lost_device, out_of_memory, internal };

caf::error reason(kind what, std::string sentence) {
  return {static_cast<std::uint8_t>(what), category::value, caf::make_message(std::move(sentence))};
}

errc code_of(kind what) {
  switch (what) {
    case kind::device:
    case kind::lost_device: return errc::device;
    case kind::out_of_memory: return errc::out_of_memory;
    case kind::internal: break;
  }
  return errc::internal;
}

} // namespace

caf::error exit_reason_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const kernels::device_error& e) {
    return reason(e.context_lost ? kind::lost_device : kind::device, e.what());
  } catch (const std::bad_alloc&) {
    return reason(kind::out_of_memory, "there is not enough memory");
  } catch (const std::exception& e) {
    return reason(kind::internal, e.what());
  } catch (...) {
    return reason(kind::internal, "something unknown was thrown");
  }
}

fault fault_of(const caf::error& reason, const caf::actor_system& system) {
  if (reason.category() != category::value || !reason.context().match_elements<std::string>())
    return {{errc::internal, "a part of the engine was ended: " + system.render(reason), {}}, true};
  const auto what = static_cast<kind>(reason.code());
  return {{code_of(what), reason.context().get_as<std::string>(0), {}}, what != kind::lost_device};
}

} // namespace troupe
