#include "runtime/import/infill_tokens.hpp"

#include "runtime/tokenizer/tokenizer.hpp"

#include <array>

namespace troupe {

namespace {

/// How the models of one origin spell the tokens.
struct infill_spelling {
  std::string_view prefix, suffix, middle;
  bool suffix_first = false;
  std::string_view end = {};
};

constexpr auto infill_spellings = std::to_array<infill_spelling>({
  {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},                                        // Qwen, CodeGemma
  {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},                                              // StarCoder, Granite
  {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},                                              // SantaCoder
  {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"}, // DeepSeek
  {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", false, "\u2581<EOT>"},                           // Code Llama
  {"<PRE>", "<SUF>", "<MID>", false, "<EOT>"},
  {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},    // GLM
  {"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", true}, // Seed-Coder
  {"[PREFIX]", "[SUFFIX]", "", true},                           // Codestral
});

constexpr auto infill_pads = std::to_array<std::string_view>({"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"});
constexpr auto infill_repositories = std::to_array<std::string_view>(
  {"<|fim_repo|>", "<|repo_name|>", "<repo_name>", "<fim-repo>", "<REPO>", "<reponame>"});
constexpr auto infill_files = std::to_array<std::string_view>({"<|file_sep|>", "<|file_separator|>", "<file_sep>"});

/// An ordinary token may be spelled so, too ("<PRE>" as letters of a word); one that stands for itself is added.
std::optional<token_id> first_infill(const tokenizer& tokens, std::span<const std::string_view> names) {
  for (const auto name : names)
    if (const auto id = tokens.id_of(name))
      return id;
  return {};
}

std::optional<infill_tokens> spelled_infill(const tokenizer& tokens) {
  for (const auto& [prefix, suffix, middle, suffix_first, end] : infill_spellings) {
    const auto before = tokens.id_of(prefix), behind = tokens.id_of(suffix);
    const auto between = middle.empty() ? std::nullopt : tokens.id_of(middle);
    if (before && behind && (between || middle.empty()))
      return infill_tokens{.prefix = *before,
                           .suffix = *behind,
                           .middle = between,
                           .suffix_first = suffix_first,
                           .end = end.empty() ? std::nullopt : tokens.id_of(end)};
  }
  return {};
}

} // namespace

std::vector<token_id> infill_tokens::all() const {
  auto result = ends();
  result.insert(result.end(), {prefix, suffix});
  if (middle)
    result.push_back(*middle);
  return result;
}

std::vector<token_id> infill_tokens::ends() const {
  std::vector<token_id> result;
  for (const auto& id : {pad, repository, file, end})
    if (id)
      result.push_back(*id);
  return result;
}

std::optional<infill_tokens> find_infill(const tokenizer& tokens, const named_infill& named) {
  std::optional<infill_tokens> result = spelled_infill(tokens);
  if (named.prefix && named.suffix) {
    // A file says nothing of the order: it is that of the model whose tokens these are.
    const bool known = result && result->prefix == *named.prefix && result->suffix == *named.suffix;
    if (!known && !named.middle)
      return {};
    if (!known)
      result.emplace();
    result->prefix = *named.prefix;
    result->suffix = *named.suffix;
    if (named.middle)
      result->middle = named.middle;
  }
  if (!result)
    return {};
  result->pad = named.pad ? named.pad : first_infill(tokens, infill_pads);
  result->repository = named.repository ? named.repository : first_infill(tokens, infill_repositories);
  result->file = named.file ? named.file : first_infill(tokens, infill_files);
  return result;
}

std::vector<token_id> infill_prompt(const infill_tokens& with, std::span<const token_id> begin,
                                    std::span<const token_id> prefix, std::span<const token_id> suffix,
                                    std::span<const infill_context> others,
                                    const std::function<std::vector<token_id>(std::string_view)>& encode) {
  std::vector<token_id> result(begin.begin(), begin.end());
  const auto add = [&](std::span<const token_id> ids) { result.insert(result.end(), ids.begin(), ids.end()); };
  // Laid out as in llama.cpp.
  if (!others.empty() && with.repository) {
    result.push_back(*with.repository);
    add(encode("myproject\n"));
  }
  for (const auto& other : others) {
    if (with.file) {
      result.push_back(*with.file);
      add(encode((other.name.empty() ? "tmp" : other.name) + '\n'));
    } else {
      add(encode("\n\n--- snippet ---\n\n"));
    }
    add(encode(other.text));
  }
  if (!others.empty() && with.file) {
    result.push_back(*with.file);
    add(encode("filename\n"));
  }
  const auto add_prefix = [&] {
    result.push_back(with.prefix);
    add(prefix);
  };
  const auto add_suffix = [&] {
    result.push_back(with.suffix);
    add(suffix);
  };
  if (with.suffix_first) {
    add_suffix();
    add_prefix();
  } else {
    add_prefix();
    add_suffix();
  }
  if (with.middle)
    result.push_back(*with.middle);
  return result;
}

} // namespace troupe
