// A technique changes how a model answers. Each one is a folder here, which nothing else names: a `technique` says by
// which options requests, programs and servers set it and what it does with them, and a `technique_use` is what one
// request asks of it, with the hooks (hooks.hpp) by which it takes part in steps. Parsers, command lines and runners
// fold over the repertoire (repertoire.hpp).
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/log_line.hpp"
#include "runtime/techniques/hooks.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct chat_output;        // runtime/chat/output/chat_output.hpp
class constraint_compiler; // constraint.hpp
class decoder;             // runtime/model/decoder/decoder.hpp
struct engine_options;     // runtime/engine/engine_options.hpp
class group_strategy;      // runtime/sampling/group_strategy.hpp
class guess_part;          // runtime/engine/loading/guess_part.hpp
class field_reader;        // runtime/support/json/field_reader.hpp
class model_variants;      // model_variants.hpp
struct generation;         // runtime/scheduling/request.hpp
struct group_start;        // runtime/sampling/group_strategy.hpp
struct judged_prompt;      // runtime/sampling/judging.hpp
struct loaded_model;       // runtime/engine/loading/loaded_model.hpp
struct model_config;       // runtime/model/model_config.hpp
struct model_info;         // runtime/engine/engine_options.hpp
struct opened_model;       // runtime/engine/loading/opened_model.hpp
struct product_terms;      // products.hpp
struct sampling_params;    // runtime/sampling/sampling_params.hpp
class step_runner;         // runtime/execution/step_runner.hpp
struct step_sizes;         // runtime/execution/step_runner.hpp
struct technique;

namespace kernels {
class backend;
enum class dtype : std::uint8_t;
} // namespace kernels

// -- options ----------------------------------------------------------------------------------------------------------

/// The texts of flags by their names; a switch that is on has an empty one.
using flag_values = std::map<std::string, std::vector<std::string>, std::less<>>;

/// The one text of a flag that may be given once; empty if it is not.
std::string text_of(const flag_values& flags, std::string_view name);
/// The text of a flag as a number, which was checked when it was parsed; `otherwise` if it is not given.
float number_of(const flag_values& flags, std::string_view name, float otherwise);
/// The texts of a flag; none if it is not given.
std::span<const std::string> texts_of(const flag_values& flags, std::string_view name);
/// The parts of NAME=FILE. Throws failure(bad_request).
std::pair<std::string, std::string> parse_named_file(std::string_view text);

/// One option of a technique. A field has its name, a flag dashes for its underscores.
struct technique_option {
  enum place : std::uint16_t {
    completion = 1, // a field of requests for completions
    chat = 2,       // a field of chats
    run = 4,        // a flag of run and chat
    engine = 8,     // a flag of whatever loads a model
    server = 16,    // a flag of serve
    several = 32,   // with `chat`: not of interfaces whose requests have one answer
    setting = 64,   // a number: a flag of run and chat among those of sampling, also in the form of the server's page
    second = 128,   // a flag of whatever loads a model, about another to load beside it
    served = 256,   // a flag of serve, of the model that it loads
    bench = 512,    // a flag of bench model
    leading = 1024, // ahead of all others of its places
    answer = 2048   // a flag of run, about what the answer looks like
  };
  enum class kind : std::uint8_t { text, texts, on, integer, number, choice };

  std::string_view name;
  int where = 0; // of `place`
  kind what = kind::text;
  const char* type = ""; // of its value, in the help; of a choice, the words, with bars between them
  const char* help = "";
  void (*check)(std::string_view) = nullptr; // throws failure; null: whatever can be wrong is found later
  double least = 0, most = 0;                // of integers and numbers
  const char* fallback = "";                 // what the help shows beside the type; of a setting, its initial value
  std::string_view elsewhere = {};           // what llama.cpp or vLLM call the flag; several with spaces between

  bool in(int places) const { return (where & places) != 0; }
};

/// What techniques keep for a model: files that the engine has loaded for them, settings of a server.
class technique_values {
public:
  /// The value that a technique has kept, which is of its type T; null: none.
  template <class T>
  const T* find(const technique& of) const {
    const auto found = all_.find(&of);
    return found == all_.end() ? nullptr : static_cast<const T*>(found->second.get());
  }
  /// Null: leaves none.
  void set(const technique& of, std::shared_ptr<const void> value);
  void merge(const technique_values& others);
  bool empty() const { return all_.empty(); }

private:
  std::map<const technique*, std::shared_ptr<const void>> all_;
};

// -- requests ---------------------------------------------------------------------------------------------------------

/// Whether a request, or a command line, has named a field.
using given_fields = std::function<bool(std::string_view)>;

/// A model beside the engine's, of the same vocabulary: what the engine keeps for a technique that has it loaded.
struct second_facts {
  int context = 0, vocab = 0;
};

/// What a loaded model allows techniques.
struct technique_limits {
  int layers = 0;                           // of the model
  int hidden = 0;                           // length of an embedding; 0: rows of prompts come from tokens alone
  bool tied = false;                        // its head is its embedding matrix
  bool looks_inside = true;                 // the device has inner_rows
  bool judges = false;                      // somebody values answers
  const technique_values* values = nullptr; // null: none
};

/// What a model that is served offers to who reads requests for it.
struct technique_facts {
  const technique_values& values;
  int hidden = 0;      // length of its embeddings
  bool judges = false; // somebody values answers
  bool words = false;  // it has a tokenizer
};

/// How the sequences of a request are judged together (runtime/sampling/group_strategy.hpp).
struct group_kind {
  std::string_view field = {};      // that asks for it
  std::string_view called = {};     // in sentences about what cannot be used beside it; empty: its field
  int width = 0;                    // sequences that run at once
  std::string_view counted_by = {}; // the field that says how many; empty: the technique decides
  bool ranked = false;              // the n best answers come at its end; else the one answer, token by token
  bool drawn = true;                // temperature and filters decide what goes on
  bool twin = false;                // the second sequence has a prompt of its own (generation::negative_prompt)
  bool goes_back = false;           // a sequence may go on from any place of others, as recurrent layers cannot
  bool judged = false;              // an answer_judge values the answers
  std::string_view too_large = {};  // why it does not fit into the KV cache, and what to do

  /// The field that decides how many sequences there are.
  std::string_view width_field() const { return counted_by.empty() ? field : counted_by; }
  /// The name that sentences call it.
  std::string name() const { return called.empty() ? '`' + std::string(field) + '`' : std::string(called); }
};

class technique_use;
using technique_use_ptr = std::shared_ptr<const technique_use>;

/// What a use asks its request's answers to follow. It is compiled for a model (constraint.hpp).
class constraint_source {
public:
  virtual ~constraint_source() = default;

  virtual std::size_t text_bytes() const = 0; // of what is compiled
  virtual bool is_json() const = 0;           // answers are JSON
  virtual bool is_exact() const = 0;          // it says every byte of answers, spaces at their start included

  /// The same, whose errors name fields in another way.
  virtual technique_use_ptr renamed(const std::function<std::string(const std::string&)>& name) const = 0;
};

/// What a request asks of a technique. Immutable; made by whoever parses the request, and shared as far as the sampler.
class technique_use {
public:
  virtual ~technique_use() = default;

  virtual const technique& of() const = 0;

  /// What the use comes to beside the other parameters of its request, which have been read, once; null: nothing. It
  /// may change those. `self`: this one. Throws failure(bad_request) if they contradict each other.
  virtual std::shared_ptr<const technique_use> settled(std::shared_ptr<const technique_use> self, sampling_params&,
                                                       const given_fields&) const {
    return self;
  }

  /// Throws failure(bad_request) if it cannot be used beside the other parameters.
  virtual void check(const sampling_params&) const {}

  /// The use as a model can serve it; null: it comes to nothing. `self`: this one. Throws failure if it cannot.
  virtual std::shared_ptr<const technique_use> fitted(std::shared_ptr<const technique_use> self, const generation&,
                                                      const technique_limits&) const {
    return self;
  }

  /// Bytes that it holds, where clients decide how many.
  virtual std::size_t bytes() const { return 0; }

  /// Tokens that prompt and answer may have, of a fitted one; 0: as many as the model allows.
  virtual int context() const { return 0; }

  /// Why the prompt must be tokens: how the sentence ends that refuses others. Empty: it need not be.
  virtual std::string_view needs_tokens() const { return {}; }

  /// What K and V depend on (runtime/scheduling/prefix_salt.hpp), of a fitted one; 0: not on it. It is the same in all
  /// processes that keep prefixes in one place.
  virtual std::uint64_t salt() const { return 0; }

  // The hooks that it has:
  /// The edit of one sequence of a request, by its seed and the sequence's number.
  virtual std::unique_ptr<logits_edit> edit(std::uint64_t, std::uint32_t) const { return nullptr; }
  virtual bool edits() const { return false; }
  /// Whether the request's rows are given to technique::change_rows.
  virtual bool changes_rows() const { return false; }
  /// The field that asks to contrast the request's logits with other rows, which the technique's inner_rows give, or its
  /// second model. Empty: none does.
  virtual std::string_view contrasts() const { return {}; }
  /// Contrasts `scores` [vocab], which are `logits` [vocab] after the request's edits, with such a row.
  virtual void contrast(std::span<const float> /*logits*/, std::span<const float> /*other*/,
                        std::span<float> /*scores*/) const {}
  /// What is added to the products of the request's rows; null: nothing. At most one use of a request has any.
  virtual const product_terms* products() const { return nullptr; }
  /// Whether any of these concerns its rows.
  bool of_rows() const { return changes_rows() || !contrasts().empty() || products() != nullptr; }
  /// Nothing: its sequences are not judged together.
  virtual std::optional<group_kind> group() const { return std::nullopt; }
  virtual std::unique_ptr<group_strategy> judge(group_start) const;
  /// Null: answers are free.
  virtual const constraint_source* constraint() const { return nullptr; }
  /// The name of the model in its answers, if it is another one than the engine's (model_variants).
  virtual std::string_view answers_as() const { return {}; }
};

/// A prompt that a technique gives in place of tokens, which stand for nothing then.
struct given_prompt {
  technique_use_ptr by;
  std::int32_t tokens = 0;
};

// -- the technique itself ---------------------------------------------------------------------------------------------

/// What a technique needs to know of a model to load files for it.
struct technique_model {
  const model_config& config;
  std::string name = {};      // for clients
  std::string device = {};    // as the log describes it
  bool changes_rows = false;  // which calls change_rows
  bool adds_products = false; // and adds technique_use::products
  bool own_memory = false;    // which is not the host's
  bool one_device = true;     // has all layers
  kernels::dtype compute;
  std::function<std::unique_ptr<kernels::backend>()> open = {}; // a backend of the kind that computes
  log_sink log = {};
};

/// Values the answers of groups (group_kind::judged) by a model of its own, in an engine of its own (actors/judge.hpp).
struct answer_judge {
  std::string_view flag; // an option that is a `second`: it names the model
  std::string_view name; // in sentences

  /// Of the model's engine, beside one of these options.
  engine_options (*options)(const engine_options& beside) = nullptr;
  /// Throws failure(unsupported) unless the model can judge.
  void (*require)(const loaded_model&) = nullptr;
  /// The text that the model reads, whose pooled states have the value. Throws failure(bad_request).
  generation (*question)(const model_info&, const judged_prompt&, const std::string& answer) = nullptr;
  /// From 0 to 1. Throws failure(internal) if it is no number.
  double (*value)(const model_info&, std::span<const float> pooled) = nullptr;

  /// What a search is told that it cannot value for now.
  error away() const {
    return {errc::unavailable, "the " + std::string(name) + " is being loaded again after a failure", "search"};
  }
};

/// The judge whose model these flags name; null: nobody values answers.
const answer_judge* judge_of(const flag_values& flags);

/// What a judge may be called in sentences, of all techniques that have one.
std::string names_of_judges();

/// Constrains answers (constraint.hpp).
struct answer_constraints {
  /// What compiles those of a model's requests.
  std::unique_ptr<constraint_compiler> (*open)(const model_info&) = nullptr;
  /// What answers with such reasoning and calls follow, so that a budget is kept and calls can be read; null: nothing.
  /// `content`: what their content follows; null: nothing. Throws failure.
  technique_use_ptr (*of_output)(const chat_output&, const constraint_source* content) = nullptr;
  /// What answers follow in which these texts must not occur, and which follow `own`, if that is not null.
  technique_use_ptr (*without)(const std::vector<std::string>& texts, const constraint_source* own) = nullptr;
};

/// The constraints of the repertoire; null: there are none, and answers are free.
const answer_constraints* constraints();

/// Functions that it does not need are null.
struct technique {
  std::string_view name; // of its folder
  std::span<const technique_option> options = {};

  /// What a request's fields ask for; null: nothing. Throws failure naming the field.
  technique_use_ptr (*read)(const field_reader& body, const technique_facts& model) = nullptr;
  /// The prompts of a request for completions, at most so many; none: it has none of this kind. Throws failure naming
  /// the field, which has the technique's name.
  std::vector<given_prompt> (*read_prompts)(const field_reader& body, const technique_facts& model,
                                            std::size_t most) = nullptr;
  /// What the flags of `run` and `chat` ask for; null: nothing. Throws failure.
  technique_use_ptr (*of_flags)(const flag_values&) = nullptr;
  /// What an engine keeps for it; null: nothing. Throws failure.
  std::shared_ptr<const void> (*load)(const flag_values&, const technique_model&) = nullptr;
  /// The models that it makes of the engine's; null: it has none.
  model_variants* (*variants)(const technique_values&) = nullptr;
  /// What a server keeps for it; null: nothing. Throws failure.
  std::shared_ptr<const void> (*serve)(const flag_values&) = nullptr;

  /// Fitted uses with random contents, which the sequences of `bench model` have in turn. Throws failure.
  std::vector<technique_use_ptr> (*samples)(const flag_values&, const technique_model&) = nullptr;

  /// Changes rows between layers; a row's results depend on its own use alone. For backends whose device memory is the
  /// host's. `rows` live as long as the hook. `scale`: of the model's embeddings.
  layer_hook (*change_rows)(kernels::backend&, std::vector<used_rows> rows, float scale) = nullptr;
  /// Makes inner rows for a runner's decoder, whose backend it uses.
  std::unique_ptr<inner_rows> (*look_inside)(decoder&, kernels::backend&) = nullptr;
  /// Bytes that these take at most.
  std::size_t (*inner_memory)(const step_sizes&, const model_config&, kernels::dtype compute) = nullptr;

  /// Runs another model beside the runner of the last stage. The option of the technique's own name, which is a `second`,
  /// names it, and what is kept for the technique are its second_facts. Both have as many blocks under the same numbers,
  /// and in an image the second's part follows the other's.
  std::unique_ptr<step_runner> (*run_beside)(std::unique_ptr<step_runner> own, std::unique_ptr<step_runner> second,
                                             int vocab_of_second) = nullptr;

  const answer_judge* judge = nullptr;
  const answer_constraints* constrain = nullptr; // of at most one technique of a repertoire

  /// Opens what guesses how sequences of a model go on (guesser.hpp), where anything does; at most one technique of a
  /// repertoire has this. The model outlives it. Throws failure.
  std::unique_ptr<guess_part> (*guess)(const engine_options&, const opened_model&, const log_sink&) = nullptr;
};

} // namespace troupe
