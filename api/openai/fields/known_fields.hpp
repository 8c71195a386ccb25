// The names of fields, so that one that nothing reads (misspelt, or of another server) is told to the client instead of
// being ignored in silence. Pure; runs on worker threads.
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/service/served_model.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Sentences in one answer; further ones are counted.
inline constexpr std::size_t most_notes = 8;

/// Which requests have a field.
enum class field_scope : std::uint8_t { both, completions, chat };

/// Whether completions or chats have such a field, with or without influence.
bool is_known_field(std::string_view name, field_scope of);

/// A sentence for each field that nothing reads, of the body and of its `stream_options`, with a known name that is
/// much like it; none, or failure(bad_request) naming the first, if the server's operator wants that. `envelope`:
/// further members of the body, which the caller reads.
std::vector<std::string> notes_on_fields(const field_reader& body, unknown_fields how, field_scope of,
                                         std::span<const std::string_view> envelope = {});

/// The same for members of the body whose name is none of these.
std::vector<std::string> notes_on_members(const field_reader& body, unknown_fields how,
                                          std::span<const std::string_view> known);

/// The same for one member: "`name` is not known here and has no effect", with the one of `known` that may be meant.
/// False, and nothing is added, if there are too many notes.
bool note_unknown(unknown_fields how, const field_reader& of, std::string_view name,
                  std::span<const std::string_view> known, std::vector<std::string>& notes);

/// All notes in one line of printable ASCII, for a header; of bounded length.
std::string header_of_notes(const std::vector<std::string>& notes);

} // namespace troupe
