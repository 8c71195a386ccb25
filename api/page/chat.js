// The chat: conversations, the requests that are under way, and what the buttons do.
import { announce, button, choose, dialog, focusKey, h, save } from './dom.js';
import { call, request } from './link.js';
import * as tree from './conversation.js';
import { erase, loadAll, put, recall, remember } from './store.js';
import { changesIn, fieldsOf, loadSettings, profiles, settingsForm } from './settings.js';
import { codeOf, editTools, run, toolFields, toolsOn } from './tools.js';
import { closePopover } from './tokens.js';
import { fill, turnView } from './turns.js';

/** @typedef {import('./conversation.js').Turn} Turn */
/** @typedef {import('./conversation.js').Conversation} Conversation */

const mostFileBytes = 256 << 10, mostRounds = 8, shownAlternatives = 5;

/** @type {Conversation[]} */
let all = [];
let current = tree.newConversation();
/** By turn. @type {Map<string, { stop: () => void, of: Conversation, rounds: number }>} */
const live = new Map();
/** @type {string[]} */
let models = [];
let hasTemplate = true, context = 4096; // tokens
let wantsTokens = recall('tokens', false), compares = recall('compare', false);
/** @type {{ name: string, text: string }[]} */
let attached = [];

const thread = h('div', { class: 'thread' });
const scroller = h('div', { class: 'scroller', tabindex: '-1' }, thread);
const list = h('ul', { class: 'conversations' });
const box = h('textarea', { rows: 1, placeholder: 'Write a message', 'aria-label': 'Message' });
const files = h('div', { class: 'attached' });
const sendButton = button('Send', () => (isBusy() ? stop() : send()), { class: 'main', id: 'send' });
const settingsPane = h('aside', { class: 'pane settings-pane', 'aria-label': 'Settings', hidden: true });
const sidebar = h('aside', { class: 'pane sidebar', 'aria-label': 'Conversations' });

/** @type {import('./turns.js').Actions} */
const actions = {
  live: (turn) => live.has(turn.id),
  siblings: (turn) => tree.childrenOf(current, turn.parent),
  show: (turn) => { current.chosen[turn.parent ?? ''] = turn.id; changed(); },
  regenerate: (turn) => answer(turn.parent, turn.label === 'B' ? 1 : 0),
  edit: (turn, content) => {
    const made = tree.add(current, { parent: turn.parent, role: turn.role, content, files: turn.files });
    if (turn.role === 'user') answerAll(made.id);
    else changed();
  },
  remove: (turn) => {
    for (const [id, one] of live) if (tree.ancestors(current, id).includes(turn)) one.stop();
    tree.remove(current, turn.id);
    changed();
  },
  branch: (turn, place, id, text) => { branch(turn, place, id, text).catch((why) => announceWrong(turn, why)); },
  wantsTokens: () => wantsTokens,
  answerCalls: (turn, results) => answerCalls(turn, results, mostRounds),
  answered: (turn) => tree.childrenOf(current, turn.id).length > 0,
};

/** @param {HTMLElement} view */
export async function startChat(view) {
  build(view);
  all = await loadAll();
  if (all[0]) current = all[0];
  render();
  try {
    const told = await (await call('/v1/models')).json();
    models = told.data.map((/** @type {any} */ one) => one.id);
    await loadSettings();
    context = (await (await call('/tokenizer_info')).json()).model_max_length || context;
    hasTemplate = await call('/tokenize', { messages: [{ role: 'user', content: 'x' }] }).then(() => true, () => false);
    render();
  } catch (why) {
    thread.prepend(h('p', { class: 'wrong', role: 'alert' }, why instanceof Error ? why.message : String(why)));
  }
  fillSettings();
  box.focus();
}

/** @param {HTMLElement} view */
function build(view) {
  const toggles = h('div', { class: 'toggles' },
    button('Conversations', () => toggle(sidebar), { class: 'quiet narrow-only', 'aria-expanded': 'false' }),
    button('Attach', () => choose('text/*,.md,.json,.csv,.py,.js,.c,.cpp,.hpp,.rs,.go,.java,.toml,.yaml,.yml,.xml,.log', attach), { class: 'quiet' }),
    checkbox('Token view', wantsTokens, (on) => { wantsTokens = on; remember('tokens', on); render(); }),
    checkbox('Side by side', compares, (on) => { compares = on; remember('compare', on); fillSettings(); }),
    button('Tools', () => editTools(showCounts).then(showCounts), { class: 'quiet', id: 'tools' }),
    button('Settings', () => toggle(settingsPane), { class: 'quiet', id: 'settings', 'aria-expanded': 'false' }));
  const composer = h('form', { class: 'composer', onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); send(); } },
    files, h('div', { class: 'write' }, box, sendButton), toggles);
  box.addEventListener('input', grow);
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!isBusy()) send();
    }
  });
  view.addEventListener('keydown', (event) => { if (event.key === 'Escape' && isBusy()) stop(); });
  sidebar.append(h('div', { class: 'row' }, button('New conversation', begin, { class: 'main' })), list,
    h('div', { class: 'row' }, button('Export', exportAll, { class: 'quiet' }), button('Import', importSome, { class: 'quiet' })));
  view.append(sidebar, h('div', { class: 'middle' }, scroller, composer), settingsPane);
  showCounts();
}

/** @param {string} label @param {boolean} on @param {(on: boolean) => void} change */
function checkbox(label, on, change) {
  const input = h('input', { type: 'checkbox', checked: on, onchange: () => change(input.checked) });
  return h('label', { class: 'check' }, input, ` ${label}`);
}

/** @param {HTMLElement} pane */
function toggle(pane) {
  const narrow = pane === sidebar;
  if (narrow) pane.classList.toggle('open');
  else pane.hidden = !pane.hidden;
  const open = narrow ? pane.classList.contains('open') : !pane.hidden;
  for (const one of document.querySelectorAll(narrow ? '.narrow-only' : '#settings')) one.setAttribute('aria-expanded', String(open));
  if (open) /** @type {HTMLElement | null} */ (pane.querySelector('input, select, button'))?.focus();
}

function fillSettings() {
  /** @param {number} i @param {string} name */
  const form = (i, name) => settingsForm(profiles[i], models, name, showCounts);
  settingsPane.replaceChildren(h('div', { class: 'row' }, h('h2', {}, 'Settings'), h('span', { class: 'grow' }),
    button('Close', () => toggle(settingsPane), { class: 'quiet' })));
  if (!compares) return settingsPane.append(form(0, 'A'));
  const both = [form(0, 'A'), form(1, 'B')];
  both[1].hidden = true;
  const tabs = both.map((_, i) => button(`Answer ${'AB'[i]}`, () => {
    both.forEach((one, k) => { one.hidden = k !== i; });
    tabs.forEach((tab, k) => tab.setAttribute('aria-pressed', String(k === i)));
  }, { 'aria-pressed': String(i === 0) }));
  settingsPane.append(h('div', { class: 'row' }, ...tabs), ...both);
}

function showCounts() {
  const settings = document.getElementById('settings'), tools = document.getElementById('tools');
  const n = changesIn(profiles[0]) + (compares ? changesIn(profiles[1]) : 0), t = toolsOn();
  if (settings) settings.textContent = n ? `Settings (${n})` : 'Settings';
  if (tools) tools.textContent = t ? `Tools (${t})` : 'Tools';
}

function grow() {
  box.style.height = 'auto';
  box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight * 0.4)}px`;
}

// -- conversations ----------------------------------------------------------------------------------------------------

function begin() {
  current = tree.newConversation();
  sidebar.classList.remove('open');
  render();
  box.focus();
}

function changed() {
  current.changed = Date.now();
  if (!all.includes(current)) all.unshift(current);
  put(current);
  render();
}

async function exportAll() {
  save(`troupe-conversations-${new Date().toISOString().slice(0, 10)}.json`, tree.exported(all));
}

function importSome() {
  choose('application/json,.json', async (chosen) => {
    for (const file of chosen)
      try {
        const made = tree.imported(await file.text());
        for (const one of made) {
          all.unshift(one);
          await put(one);
        }
        if (made[0]) current = made[0];
        announce(`${made.length} conversations imported`);
      } catch (why) {
        await dialog('The file cannot be imported', (close) => [h('p', {}, why instanceof Error ? why.message : String(why)),
          button('Close', () => close(null), { class: 'main' })]);
      }
    render();
  });
}

/** @param {File[]} chosen */
async function attach(chosen) {
  for (const file of chosen) {
    const text = file.size > mostFileBytes ? null : await file.text();
    if (text === null || text.includes('\0'))
      await dialog('The file cannot be attached', (close) => [
        h('p', {}, text === null ? `${file.name} is larger than ${mostFileBytes >> 10} KiB.` : `${file.name} is no text.`),
        button('Close', () => close(null), { class: 'main' })]);
    else
      attached.push({ name: file.name, text });
  }
  showAttached();
}

function showAttached() {
  files.replaceChildren(...attached.map((file, i) => h('span', { class: 'tag' }, file.name,
    button('×', () => { attached.splice(i, 1); showAttached(); }, { class: 'quiet', 'aria-label': `Remove ${file.name}` }))));
}

// -- requests ---------------------------------------------------------------------------------------------------------

const isBusy = () => [...live.values()].some((one) => one.of === current);

function stop() {
  for (const one of live.values()) if (one.of === current) one.stop();
}

function send() {
  const content = box.value;
  if (!content.trim() && attached.length === 0 || isBusy()) return;
  const shown = tree.path(current);
  const parent = shown.length ? shown[shown.length - 1].id : null;
  if (current.title === 'New conversation') current.title = content.trim().slice(0, 60) || attached[0].name;
  const turn = tree.add(current, { parent, role: 'user', content, files: attached.length ? attached : undefined });
  box.value = '';
  attached = [];
  showAttached();
  grow();
  answerAll(turn.id);
}

/** @param {string | null} parent */
function answerAll(parent) {
  if (!compares) return answer(parent, 0);
  const pair = tree.newId();
  answer(parent, 1, { pair, label: 'B' });
  answer(parent, 0, { pair, label: 'A' });
}

/**
 * Adds an answer to a turn and streams it.
 * @param {string | null} parent
 * @param {number} profile
 * @param {Partial<Turn>} [more]
 * @param {number} [rounds] of calls that were answered by functions
 */
function answer(parent, profile, more = {}, rounds = 0) {
  const of = current;
  const turn = tree.add(of, { parent, role: 'assistant', content: '', ...more });
  try {
    /** @type {Record<string, any>} */
    const fields = { ...fieldsOf(profiles[profile]), ...toolFields() };
    turn.model = fields.model || models[0];
    const turns = tree.ancestors(of, parent);
    if (hasTemplate) fields.messages = tree.messages(of.system, turns);
    else fields.prompt = of.system + turns.map(tree.textOf).join('');
    if (!hasTemplate) delete fields.tools;
    if (!hasTemplate) fields.max_tokens ??= Math.min(512, context); // else 16, as OpenAI's completions have it
    stream(of, turn, fields, rounds);
  } catch (why) {
    turn.error = why instanceof Error ? why.message : String(why);
  }
  changed();
}

/** @param {Conversation} of @param {Turn} turn @param {Record<string, any>} fields @param {number} rounds */
function stream(of, turn, fields, rounds) {
  const chats = fields.messages !== undefined;
  if (wantsTokens && !fields.use_beam_search)
    Object.assign(fields, chats ? { logprobs: true, top_logprobs: shownAlternatives } : { logprobs: shownAlternatives });
  const handle = request({ ...fields, type: 'generate' }, (frame) => {
    hear(turn, frame);
    if (frame.type !== 'done' && frame.type !== 'error') return refresh(turn);
    live.delete(turn.id);
    of.changed = Date.now();
    put(of);
    announce(turn.error ? turn.error : 'The answer is complete');
    if (of === current) render();
    if (turn.calls?.length && !turn.error && of === current) runCalls(turn, rounds);
  });
  live.set(turn.id, { stop: handle.stop, of, rounds });
  announce('The answer is being written');
}

/** @param {Turn} turn @param {import('./link.js').Frame} frame */
function hear(turn, frame) {
  if (frame.type === 'token' && frame.index === 0) {
    turn.content += frame.text;
    if (frame.reasoning_content) turn.reasoning = (turn.reasoning || '') + frame.reasoning_content;
    for (const delta of frame.tool_calls || []) takeCall(turn, delta);
    (frame.logprobs || []).forEach((/** @type {any} */ one, /** @type {number} */ i) => {
      const ids = frame.top_token_ids?.[i] || [];
      (turn.tokens ??= []).push({ text: one.token, id: frame.token_ids[i], logprob: one.logprob,
        top: one.top_logprobs.map((/** @type {any} */ other, /** @type {number} */ k) => (
          { text: other.token, id: ids[k], logprob: other.logprob })) });
    });
  } else if (frame.type === 'done') {
    turn.finish = frame.choices[0].finish_reason;
    turn.usage = frame.usage;
    turn.timings = frame.timings;
    turn.warnings = frame.warnings;
  } else if (frame.type === 'error') {
    turn.error = frame.error.message;
  }
}

/** @param {Turn} turn @param {any} delta of OpenAI's streams */
function takeCall(turn, delta) {
  const calls = (turn.calls ??= []);
  const one = (calls[delta.index] ??= { id: '', name: '', arguments: '' });
  if (delta.id) one.id = delta.id;
  if (delta.function?.name) one.name = delta.function.name;
  one.arguments += delta.function?.arguments ?? '';
}

/** @param {Turn} turn @param {number} rounds */
async function runCalls(turn, rounds) {
  const codes = (turn.calls || []).map((one) => codeOf(one.name));
  if (rounds >= mostRounds || codes.some((code) => !code)) return;
  const results = await Promise.all((turn.calls || []).map((one, i) =>
    run(codes[i], one.arguments).catch((why) => `Error: ${why.message}`)));
  answerCalls(turn, results, rounds + 1);
}

/** @param {Turn} turn @param {string[]} results @param {number} rounds */
function answerCalls(turn, results, rounds) {
  let parent = turn.id;
  (turn.calls || []).forEach((one, i) => {
    parent = tree.add(current, { parent, role: 'tool', content: results[i], callId: one.id }).id;
  });
  answer(parent, turn.label === 'B' ? 1 : 0, {}, rounds);
}

/**
 * Another answer that begins with the tokens of this one up to `place`, then has another token: exactly these tokens go to
 * the model, and what comes before them is found in its prefix cache.
 * @param {Turn} turn
 * @param {number} place
 * @param {number} id
 * @param {string} text
 */
async function branch(turn, place, id, text) {
  const of = current;
  const old = turn.tokens || [];
  const fields = fieldsOf(profiles[turn.label === 'B' ? 1 : 0]);
  const { model, reasoning_effort, chat_template_kwargs } = fields;
  const known = { model, reasoning_effort, chat_template_kwargs };
  const turns = tree.ancestors(of, turn.parent);
  const asked = hasTemplate ? { ...known, messages: tree.messages(of.system, turns), ...toolFields() }
    : { model, prompt: of.system + turns.map(tree.textOf).join('') };
  const prompt = (await (await call('/tokenize', asked)).json()).tokens;
  const top = old[place].top;
  const chosen = { text, id, top, logprob: top.find((one) => one.id === id)?.logprob ?? null };
  const tokens = [...old.slice(0, place), chosen];
  const ids = tokens.map((token) => token.id);
  const begun = (await (await call('/detokenize', { model, tokens: ids })).json()).prompt;
  for (const name of ['reasoning_effort', 'chat_template_kwargs']) delete fields[name];
  const made = tree.add(of, { parent: turn.parent, role: 'assistant', content: begun, tokens, kept: tokens.length,
    model: turn.model, label: turn.label });
  fields.max_tokens ??= Math.max(1, context - prompt.length - ids.length);
  stream(of, made, { ...fields, prompt: [...prompt, ...ids] }, 0);
  changed();
}

/** @param {Turn} turn @param {any} why */
function announceWrong(turn, why) {
  turn.error = why instanceof Error ? why.message : String(why);
  render();
}

// -- what is shown ----------------------------------------------------------------------------------------------------

/** @type {Set<Turn>} */
const stale = new Set();
let lastCost = 0, waits = false;

/**
 * Shows news of a turn soon, but spends at most a fifth of the time on it.
 * @param {Turn} turn
 */
function refresh(turn) {
  stale.add(turn);
  if (waits) return;
  waits = true;
  setTimeout(() => requestAnimationFrame(() => {
    waits = false;
    const begun = performance.now();
    const sticks = isAtEnd();
    keepFocus(() => {
      for (const one of stale) {
        const shown = /** @type {HTMLElement | null} */ (thread.querySelector(`[data-turn="${one.id}"]`));
        if (shown) fill(shown, one, actions);
      }
    });
    stale.clear();
    if (sticks) scroller.scrollTop = scroller.scrollHeight;
    lastCost = performance.now() - begun;
  }), Math.max(30, 4 * lastCost));
}

const isAtEnd = () => scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 60;

/** @param {() => void} draw replaces parts of the thread */
function keepFocus(draw) {
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.key : undefined;
  draw();
  if (focused) focusKey(focused);
}

function render() {
  closePopover();
  const sticks = isAtEnd();
  const shown = tree.path(current);
  const parts = [systemPrompt(), ...shown.map((turn) => {
    const pair = turn.pair ? tree.childrenOf(current, turn.parent).filter((one) => one.pair === turn.pair) : [];
    if (pair.length < 2) return turnView(turn, actions);
    pair.sort((a, b) => (a.label || '').localeCompare(b.label || ''));
    return h('div', { class: 'pair' }, ...pair.map((one) => {
      const view = turnView(one, actions);
      view.classList.toggle('picked', one === turn);
      return view;
    }));
  })];
  if (shown.length === 0) parts.push(welcome());
  keepFocus(() => {
    thread.replaceChildren(...parts);
    showList();
  });
  const busy = isBusy();
  sendButton.textContent = busy ? 'Stop' : 'Send';
  sendButton.classList.toggle('stop', busy);
  if (sticks) scroller.scrollTop = scroller.scrollHeight;
}

function systemPrompt() {
  const text = h('textarea', { rows: 3, value: current.system, 'aria-label': 'System prompt', onchange: () => {
    current.system = text.value;
    if (Object.keys(current.turns).length) changed();
  } });
  return h('details', { class: 'system', open: current.system !== '' }, h('summary', {}, 'System prompt'), text);
}

function welcome() {
  const examples = ['Tell me a story about a fox', 'Tell me a story about the sea', 'What is the weather in Paris?'];
  return h('div', { class: 'welcome' }, h('h1', {}, 'Start a conversation'),
    h('p', { class: 'dim' }, models[0] ? `Answers come from ${models[0]}, on this machine.` : 'Answers come from this machine.'),
    h('div', { class: 'row' }, ...examples.map((text) => button(text, () => { box.value = text; send(); }))));
}

function showList() {
  list.replaceChildren(...all.map((one) => h('li', {},
    button(one.title, () => { current = one; sidebar.classList.remove('open'); render(); },
      { class: 'quiet', 'aria-current': one === current ? 'true' : null, 'data-key': `open-${one.id}` }),
    button('×', async () => {
      const sure = await dialog('Delete this conversation?', (close) => [h('p', {}, one.title), h('div', { class: 'row' },
        button('Delete', () => close(true), { class: 'main' }), button('Cancel', () => close(null), { class: 'quiet' }))]);
      if (!sure) return;
      all = all.filter((other) => other !== one);
      await erase(one.id);
      if (one === current) current = all[0] || tree.newConversation();
      render();
    }, { class: 'quiet', 'aria-label': `Delete ${one.title}` }))));
}
