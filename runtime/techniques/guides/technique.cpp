#include "runtime/techniques/guides/technique.hpp"

#include "runtime/engine/engine_options.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/techniques/guides/guide_cache.hpp"

#include <array>

namespace troupe {

namespace guides {

namespace {

class guide_use final : public technique_use, public constraint_source {
public:
  explicit guide_use(source_ptr source) : source_(std::move(source)) {}

  const technique& of() const override { return guides_technique; }
  const source_ptr& source() const { return source_; }

  technique_use_ptr fitted(technique_use_ptr self, const generation& asked, const technique_limits&) const override {
    if (asked.sampling.scores_only())
      refuse_field(field_of(*source_), "cannot be used, as nothing is generated");
    return self;
  }
  const constraint_source* constraint() const override { return this; }

  std::size_t text_bytes() const override { return size_of(*source_); }
  bool is_json() const override { return guides::is_json(*source_); }
  bool is_exact() const override {
    using kind = guide_source::kind;
    const auto what = source_->what;
    return source_->after.empty() && source_->preface_begin.empty() &&
      (what == kind::regex || what == kind::choice || what == kind::grammar);
  }
  technique_use_ptr renamed(const std::function<std::string(const std::string&)>& name) const override {
    auto own = *source_;
    own.field = name(own.field);
    for (auto& part : own.parts)
      part = name(part);
    return following(std::move(own));
  }

private:
  source_ptr source_;
};

source_ptr source_of(const constraint_source* asked) {
  return asked ? static_cast<const guide_use&>(*asked).source() : nullptr;
}

std::unique_ptr<constraint_compiler> open(const model_info& model) {
  return std::make_unique<guide_cache>(model.tokenizer, model.defaults.stops, guide_cache::limits(), model.markers);
}

technique_use_ptr of_output(const chat_output& what, const constraint_source* content) {
  return following(output_guide(what, source_of(content)));
}

technique_use_ptr without(const std::vector<std::string>& texts, const constraint_source* own) {
  guide_source source{.what = guide_source::kind::anything, .field = "policy"};
  if (own)
    source = *source_of(own);
  source.banned = texts;
  return following(std::move(source));
}

technique_use_ptr read(const field_reader& body, const technique_facts& model) {
  auto source = read_guide(body);
  if (source && !model.words)
    refuse_field(source->field, "needs a tokenizer, and this model has none");
  return following(std::move(source));
}

technique_use_ptr of_flags(const flag_values& flags) { return following(source_of_flags(flags)); }

using option = technique_option;

constexpr int both = option::completion | option::chat;

constexpr auto options = std::to_array<option>({
  {"response_format", both},
  {"structured_outputs", both},
  {"guided_json", both},
  {"guided_regex", both},
  {"guided_choice", both},
  {"guided_grammar", both},
  {"grammar", both},
  {"json_schema", both},
  // unsupported, and refused by name
  {"guided_whitespace_pattern", both},
  {"structural_tag", both},
  // without influence
  {"guided_decoding_backend", both},

  {"json_schema", option::answer, option::kind::text, "FILE", "The answer follows the JSON Schema in this file"},
  {"json_object", option::answer, option::kind::on, "", "The answer is a JSON object"},
  {"regex", option::answer, option::kind::text, "REGEX", "The answer matches this regular expression"},
  {"grammar", option::answer, option::kind::text, "FILE", "The answer follows the grammar in this file, GBNF or Lark"},
  {"choice", option::answer, option::kind::texts, "TEXT",
   "The answer is one of these texts; give the flag once for each"},
  {"structural_tag", option::answer, option::kind::text, "FILE",
   "The answer follows the structural tag in this file, as in vLLM and XGrammar"},
  {"any_order", option::answer, option::kind::on, "", "JSON properties may come in any order, not only the schema's"},
  {"compact", option::answer, option::kind::on, "", "JSON without white space"},
});

constexpr answer_constraints hook{.open = open, .of_output = of_output, .without = without};

} // namespace

std::shared_ptr<const troupe::constraint> guide_cache::compile(const constraint_source& source, bool stops, bool brief,
                                                               const std::stop_token& stop) {
  return get(*source_of(&source), stops, stop, brief);
}

technique_use_ptr following(source_ptr source) {
  return source ? std::make_shared<guide_use>(std::move(source)) : nullptr;
}

source_ptr source_of(const generation& asked) { return source_of(asked.sampling.techniques.constraint()); }

} // namespace guides

const technique guides_technique{.name = "guides",
                                 .options = guides::options,
                                 .read = guides::read,
                                 .of_flags = guides::of_flags,
                                 .constrain = &guides::hook};

} // namespace troupe
