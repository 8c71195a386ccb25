// The settings of requests: a form with search, over the table of the server's own parameters and those that are no
// plain numbers. There are two profiles, for answers side by side.
import { button, h } from './dom.js';
import { call } from './link.js';
import { limitOf, modelOf, models, samplingOf } from './models.js';
import { recall, remember } from './store.js';

/**
 * @typedef {{ name: string, help: string, kind: 'number' | 'whole' | 'flag' | 'text' | 'lines' | 'json' | 'choice',
 *   least?: number, most?: number, initial?: number, choices?: string[] }} Setting
 * @typedef {{ model: string, values: Record<string, string>, form: string, formText: string }} Profile
 */

/** @type {Setting[]} */
const more = [
  { name: 'max_tokens', kind: 'whole', least: 1, help: 'Stop after this many tokens, thoughts counted; an answer that was cut can be continued' },
  { name: 'seed', kind: 'whole', help: 'The same seed, settings and messages give the same answer' },
  { name: 'stop', kind: 'lines', help: 'Texts that end the answer, one on each line' },
  { name: 'reasoning_effort', kind: 'choice', choices: ['none', 'minimal', 'low', 'medium', 'high'],
    help: 'How long the model thinks, if its template knows this' },
  { name: 'thinking_token_budget', kind: 'whole', least: -1, help: 'The most tokens that the model may think for; -1: no limit' },
  { name: 'speculate', kind: 'choice', choices: ['auto', 'off', 'draft', 'mtp', 'ngram', 'lookahead'],
    help: 'How next tokens are guessed. This changes the speed, never the answer' },
  { name: 'ignore_eos', kind: 'flag', help: 'Go on when the model would end its answer' },
  { name: 'stop_token_ids', kind: 'json', help: 'Token ids that end the answer, such as [13, 50]' },
  { name: 'logit_bias', kind: 'json', help: 'Added to the scores of tokens, by id or text, such as {" fox": -5}' },
  { name: 'bad_words', kind: 'lines', help: 'Texts that must not be generated, one on each line' },
  { name: 'allowed_token_ids', kind: 'json', help: 'The only token ids that may be generated' },
  { name: 'samplers', kind: 'lines', help: 'Names of the steps of sampling in their order; those left out are off' },
  { name: 'dry_sequence_breakers', kind: 'lines', help: 'Texts at which DRY ends a repetition' },
  { name: 'negative_prompt', kind: 'text', help: 'Classifier-free guidance leads away from what follows this' },
  { name: 'dola_layers', kind: 'choice', choices: ['low', 'high'], help: 'Lead away from what inner layers would say' },
  { name: 'steering', kind: 'json', help: 'Steering vectors, by name' },
  { name: 'watermark', kind: 'choice', choices: ['green', 'gumbel'], help: 'Mark the answer' },
  { name: 'use_beam_search', kind: 'flag', help: 'Search for likely answers, with num_beams beams' },
  { name: 'early_stopping', kind: 'flag', help: 'Beam search ends once enough answers are complete' },
  { name: 'stochastic_beams', kind: 'flag', help: 'Beams are samples without replacement' },
  { name: 'best_of_rank', kind: 'choice', choices: ['cumulative', 'mean'], help: 'With best_of: by what answers are ranked' },
  { name: 'chat_template_kwargs', kind: 'json', help: 'Variables for the chat template, as a JSON object' },
  { name: 'priority', kind: 'whole', help: 'Lower runs sooner' },
  { name: 'timeout', kind: 'number', least: 0, help: 'Seconds until the answer is given up' },
  { name: 'cache_salt', kind: 'text', help: 'Share cached prefixes only with requests of the same salt' },
];
const first = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'stop', 'reasoning_effort'];

/** @type {Setting[]} */
let settings = more;

/** What the answer must follow. */
const forms = [['', 'Free text'], ['json', 'Any JSON object'], ['schema', 'JSON Schema'], ['regex', 'Regular expression'],
  ['choice', 'One of these lines'], ['grammar', 'Grammar (GBNF or Lark)']];

/** @returns {Profile} */
const plainProfile = () => ({ model: '', values: {}, form: '', formText: '' });

/** @type {Profile[]} */
export const profiles = recall('profiles', [plainProfile(), plainProfile()]);

export async function loadSettings() {
  const given = await (await call('/page/settings.json')).json();
  settings = [...given.map((/** @type {any} */ s) => ({ ...s, kind: s.whole ? 'whole' : 'number',
    help: s.help.replace(/--([a-z-]+)/g, (/** @type {string} */ _, /** @type {string} */ n) => n.replaceAll('-', '_')) })),
  ...more];
  settings.sort((a, b) => rank(a) - rank(b));
}

/** @param {Setting} of */
function rank(of) {
  const at = first.indexOf(of.name);
  return at < 0 ? first.length : at;
}

/**
 * The fields of a request. Throws a sentence about one that cannot be read.
 * @param {Profile} of
 * @returns {Record<string, any>}
 */
export function fieldsOf(of) {
  /** @type {Record<string, any>} */
  const result = {};
  const model = modelOf(of.model);
  if (model && model !== models()[0]) result.model = model.id;
  for (const setting of settings) {
    const text = of.values[setting.name];
    if (text !== undefined && text.trim() !== '') result[setting.name] = valueOf(setting, text);
  }
  if (model && !model.named && !result.use_beam_search) // the interface below has OpenAI's defaults
    for (const [name, value] of Object.entries(model.sampling)) result[name] ??= value;
  const body = of.formText;
  if (of.form === 'json') result.response_format = { type: 'json_object' };
  if (of.form === 'schema') {
    const schema = parsed('JSON Schema', body);
    result.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } };
  }
  if (of.form === 'regex') result.structured_outputs = { regex: body };
  if (of.form === 'choice') result.structured_outputs = { choice: lines(body) };
  if (of.form === 'grammar') result.structured_outputs = { grammar: body };
  return result;
}

/** @param {string} text */
function lines(text) {
  return text.split('\n').filter((line) => line !== '');
}

/** @param {string} name @param {string} text */
function parsed(name, text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is not JSON.`);
  }
}

/** @param {Setting} setting @param {string} text */
function valueOf(setting, text) {
  switch (setting.kind) {
    case 'flag': return text === 'true';
    case 'json': return parsed(setting.name, text);
    case 'lines': return lines(text);
    case 'whole':
    case 'number': {
      const value = Number(text);
      if (!Number.isFinite(value) || (setting.kind === 'whole' && !Number.isInteger(value)))
        throw new Error(`${setting.name} must be a ${setting.kind === 'whole' ? 'whole ' : ''}number, not ${text}.`);
      return value;
    }
    default: return text;
  }
}

/** @param {Profile} of */
export function changesIn(of) {
  return Object.values(of.values).filter((text) => text.trim() !== '').length + (of.form ? 1 : 0);
}

/**
 * A choice between the models.
 * @param {Profile} profile
 * @param {string} label
 * @param {() => void} changed
 */
export function modelChoice(profile, label, changed) {
  const choice = h('select', { 'aria-label': label, onchange: () => {
    profile.model = choice.value;
    remember('profiles', profiles);
    changed();
  } }, ...models().filter((one) => one.generates).map((one) => h('option', { value: one.id, selected: one === modelOf(profile.model) }, one.id)));
  return choice;
}

/**
 * The form.
 * @param {Profile} profile
 * @param {string} name of the profile, for labels
 * @param {() => void} changed
 */
export function settingsForm(profile, name, changed) {
  const tell = () => { remember('profiles', profiles); changed(); };
  const list = h('div', { class: 'settings-list' });
  const search = h('input', { type: 'search', placeholder: 'Search settings', 'aria-label': `Search settings ${name}` });
  const none = h('p', { class: 'dim', hidden: true }, 'No setting has this in its name or description.');
  for (const setting of settings) list.append(row(profile, setting, name, tell));
  search.addEventListener('input', () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    for (const one of /** @type {HTMLCollectionOf<HTMLElement>} */ (list.children)) {
      one.hidden = !(one.dataset.text || '').includes(wanted);
      shown += one.hidden ? 0 : 1;
    }
    none.hidden = shown > 0;
  });
  const again = () => {
    list.closest('.settings')?.replaceWith(settingsForm(profile, name, changed));
    changed();
  };
  const text = h('textarea', { rows: 6, value: profile.formText, spellcheck: 'false', 'aria-label': `What it must follow ${name}`,
    hidden: !profile.form || profile.form === 'json', onchange: () => { profile.formText = text.value; tell(); } });
  const form = h('select', { 'aria-label': `Form of the answer ${name}`, onchange: () => {
    profile.form = form.value;
    text.hidden = !form.value || form.value === 'json';
    tell();
  } }, ...forms.map(([value, label]) => h('option', { value, selected: profile.form === value }, label)));
  return h('div', { class: 'settings' },
    h('label', { class: 'field' }, h('span', {}, 'Model or adapter'), modelChoice(profile, `Model ${name}`, again)),
    h('label', { class: 'field' }, h('span', {}, 'Form of the answer'), form), text,
    h('p', { class: 'dim sampling' }, samplingOf(profile.model)),
    search, list, none,
    button('Reset all', () => {
      Object.assign(profile, plainProfile(), { model: profile.model });
      tell();
      again();
    }, { class: 'quiet' }));
}

/** @param {Profile} profile @param {Setting} setting @param {string} label @param {() => void} tell */
function row(profile, setting, label, tell) {
  const { name, kind } = setting;
  const value = profile.values[name] ?? '';
  const id = `set-${label}-${name}`;
  const initial = name === 'max_tokens' ? limitOf(profile.model) : modelOf(profile.model)?.sampling[name] ?? setting.initial;
  const shown = initial === undefined ? '' : String(Number(initial.toPrecision(6)));
  /** @type {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} */
  let input;
  if (kind === 'flag' || kind === 'choice')
    input = h('select', { id }, h('option', { value: '' }, 'default'), ...(setting.choices || ['true', 'false']).map((choice) =>
      h('option', { value: choice, selected: value === choice }, choice)));
  else if (kind === 'lines' || kind === 'json' || kind === 'text')
    input = h('textarea', { id, rows: value ? 3 : 1, value, spellcheck: 'false' });
  else
    input = h('input', { id, type: 'number', value, placeholder: shown, step: kind === 'whole' ? '1' : 'any',
      min: setting.least, max: Number(setting.most) < 1e9 ? setting.most : undefined });
  const box = h('div', { class: `setting${value ? ' changed' : ''}` },
    h('label', { for: id }, name), input, h('p', { class: 'dim', id: `${id}-help` }, setting.help));
  input.setAttribute('aria-describedby', `${id}-help`);
  input.addEventListener('input', () => {
    if (input.value.trim() === '') delete profile.values[name];
    else profile.values[name] = input.value;
    box.classList.toggle('changed', input.value.trim() !== '');
    tell();
  });
  box.dataset.text = `${name} ${setting.help}`.toLowerCase();
  return box;
}
