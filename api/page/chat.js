// The chat: what is shown of a conversation, the field to write in, and what the buttons do.
import { button, choose, dialog, focusKey, h, setChildren } from './dom.js';
import * as answers from './answers.js';
import * as tree from './conversation.js';
import { all, conversationList, exportAll, forget, showList } from './conversations.js';
import { loadModels, modelOf, models } from './models.js';
import { changesIn, loadSettings, modelChoice, profiles, settingsForm } from './settings.js';
import { isWrittenElsewhere, keep, loadAll, recall, remember } from './store.js';
import { closePopover } from './tokens.js';
import { editTools, toolsOn } from './tools.js';
import { fill, turnView } from './turns.js';

/** @typedef {import('./conversation.js').Turn} Turn */
/** @typedef {import('./conversation.js').Conversation} Conversation */

const mostFileBytes = 256 << 10, nearlyFull = 0.85;

let current = tree.newConversation();
let wantsTokens = recall('tokens', false), compares = recall('compare', false);
/** @type {{ name: string, text: string }[]} */
let attached = [];

const thread = h('div', { class: 'thread' });
const scroller = h('div', { class: 'scroller', tabindex: '-1' }, thread);
const box = h('textarea', { rows: 1, placeholder: 'Write a message', 'aria-label': 'Message', dir: 'auto' });
const files = h('div', { class: 'attached' });
const sendButton = button('Send', () => (answers.isBusy(current) ? answers.stop(current) : send()), { class: 'main', id: 'send' });
const settingsPane = h('aside', { class: 'pane settings-pane', 'aria-label': 'Settings', hidden: true });
const sidebar = conversationList({ current: () => current, show });
const modelPlace = h('span', { class: 'model' });
const meter = h('span', { class: 'context', hidden: true });
/**
 * What cannot be kept, by kind.
 * @type {Record<string, HTMLElement>}
 */
const troubles = { chats: h('p', { class: 'trouble', role: 'alert', hidden: true }), settings: h('p', { class: 'trouble', role: 'alert', hidden: true }) };

/** @type {import('./turns.js').Actions} */
const actions = {
  live: answers.isLive,
  note: answers.noteOf,
  elsewhere: (turn) => isWrittenElsewhere(turn.id),
  siblings: (turn) => tree.childrenOf(current, turn.parent),
  show: (turn) => { tree.choose(current, turn); changed(); },
  regenerate: (turn) => answers.answer(current, turn.parent, turn.label ? { label: turn.label } : {}),
  resume: (turn) => answers.resume(current, turn),
  isFull: (turn) => turn.used !== undefined && turn.used >= (modelOf(turn.model)?.context ?? Infinity),
  edit: (turn, content) => {
    const made = tree.add(current, { parent: turn.parent, role: turn.role, content, files: turn.files });
    if (turn.role === 'user') answerAll(made.id);
    else changed();
  },
  remove: (turn) => {
    answers.stop(current, turn);
    tree.remove(current, turn.id);
    changed();
  },
  branch: (turn, place, id, text) => {
    answers.branch(current, turn, place, id, text).catch((why) => {
      turn.error = why instanceof Error ? why.message : String(why);
      render();
    });
  },
  wantsTokens: () => wantsTokens,
  answerCalls: (turn, results) => answers.answerCalls(current, turn, results),
  answered: (turn) => tree.childrenOf(current, turn.id).length > 0,
};

answers.shows.wantsTokens = () => wantsTokens;
answers.shows.turn = (of, turn) => { if (of === current) refresh(turn); };
answers.shows.all = (of) => {
  if (!all.includes(of)) all.unshift(of);
  if (of === current) render();
};

/** @param {HTMLElement} view */
export async function startChat(view) {
  build(view);
  all.push(...await loadAll({
    written: (id) => answers.isLive({ id }),
    writing: answers.busy,
    known: (id) => all.find((one) => one.id === id),
    found: (one) => {
      if (!all.includes(one)) all.unshift(one);
      if (one === current) render();
      else showList();
    },
    gone: forget,
    trouble: showTrouble,
  }));
  if (all[0]) current = all[0];
  render();
  await refreshModels();
  box.focus();
}

/** The server's models, which are others after another start of it. */
export async function refreshModels() {
  try {
    await loadModels();
    await loadSettings();
    render();
  } catch (why) {
    thread.prepend(h('p', { class: 'wrong', role: 'alert' }, why instanceof Error ? why.message : String(why)));
  }
  fillSettings();
}

/** @param {HTMLElement} view */
function build(view) {
  const toggles = h('div', { class: 'toggles' },
    button('Attach', () => choose('text/*,.md,.json,.csv,.py,.js,.c,.cpp,.hpp,.rs,.go,.java,.toml,.yaml,.yml,.xml,.log', attach), { class: 'quiet' }),
    checkbox('Token view', wantsTokens, (on) => { wantsTokens = on; remember('tokens', on); render(); }),
    checkbox('Side by side', compares, (on) => { compares = on; remember('compare', on); fillSettings(); }),
    button('Tools', () => editTools(showCounts).then(showCounts), { class: 'quiet', id: 'tools' }),
    button('Settings', () => toggle(settingsPane), { class: 'quiet', id: 'settings', 'aria-expanded': 'false' }));
  const more = button('⋯', () => more.setAttribute('aria-expanded', String(toggles.classList.toggle('open'))),
    { class: 'quiet narrow-only', id: 'more', 'aria-label': 'More', 'aria-expanded': 'false' });
  const composer = h('form', { class: 'composer', 'aria-label': 'Your message', onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); send(); } },
    files, h('div', { class: 'write' }, more, box, sendButton), toggles);
  box.addEventListener('input', grow);
  box.addEventListener('keydown', (event) => {
    // What ends an input method's word is no Enter; Safari says so by 229. A keyboard on a screen has no other way to a new line.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229 || matchMedia('(hover: none)').matches) return;
    event.preventDefault();
    if (!answers.isBusy(current)) send();
  });
  view.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    if (sidebar.classList.contains('open')) toggle(sidebar);
    else answers.stop(current);
  });
  const head = h('div', { class: 'chat-head' },
    button('☰', () => toggle(sidebar), { class: 'quiet narrow-only', id: 'list', 'aria-label': 'Conversations', 'aria-expanded': 'false' }),
    modelPlace, h('span', { class: 'grow' }), meter);
  view.append(sidebar, h('div', { class: 'middle' }, head, ...Object.values(troubles), scroller, composer), settingsPane);
  showCounts();
}

/** @param {'chats' | 'settings'} kind @param {string} text */
function showTrouble(kind, text) {
  const place = troubles[kind];
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.hidden = !text;
  place.replaceChildren(text, kind === 'chats' && text ? button('Export all', exportAll, { class: 'quiet' }) : '');
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
  const opener = document.getElementById(narrow ? 'list' : 'settings');
  opener?.setAttribute('aria-expanded', String(open));
  if (open) /** @type {HTMLElement | null} */ (pane.querySelector('input, select, button'))?.focus();
  else opener?.focus();
}

function fillSettings() {
  showModel();
  /** @param {number} i @param {string} name */
  const form = (i, name) => settingsForm(profiles[i], name, () => { showCounts(); showModel(); });
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

/** Who answers, and how full the context is. */
function showModel() {
  const model = modelOf(profiles[0].model);
  const several = models().filter((one) => one.generates).length > 1;
  modelPlace.replaceChildren(several ? modelChoice(profiles[0], 'Model', () => { fillSettings(); render(); }) : model?.id ?? '');
  const used = tree.path(current).reduce((/** @type {number | undefined} */ last, turn) => turn.used ?? last, undefined);
  meter.hidden = used === undefined || !model;
  if (used === undefined || !model) return;
  const part = used / model.context;
  const bar = h('meter', { min: 0, max: 1, high: nearlyFull, optimum: 0, value: Math.min(1, part), 'aria-label': 'How full the context is' });
  meter.replaceChildren(bar, ` ${used.toLocaleString('en')} of ${model.context.toLocaleString('en')}`, h('span', { class: 'wide-only' }, ' tokens'));
  meter.title = 'What the model can read at once: the conversation, thoughts and the answer';
  meter.classList.toggle('warning', part > nearlyFull);
  if (part > nearlyFull) meter.append(': nearly full, begin a new conversation soon');
}

function grow() {
  box.style.height = 'auto';
  box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight * 0.4)}px`;
}

/** @param {Conversation | null} what a new one where there is none */
function show(what) {
  current = what ?? tree.newConversation();
  sidebar.classList.remove('open');
  render();
  scroller.scrollTop = scroller.scrollHeight;
  if (!what) box.focus();
}

function changed() {
  current.changed = Date.now();
  if (!all.includes(current)) all.unshift(current);
  keep(current);
  render();
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

function send() {
  const content = box.value;
  if (!content.trim() && attached.length === 0 || answers.isBusy(current)) return;
  const shown = tree.path(current);
  const parent = shown.length ? shown[shown.length - 1].id : null;
  if (current.title === 'New conversation') {
    current.title = content.trim().split('\n')[0].slice(0, 60) || attached[0].name;
    tree.changesOf(current).fields.add('title');
  }
  const turn = tree.add(current, { parent, role: 'user', content, ...(attached.length ? { files: attached } : {}) });
  box.value = '';
  attached = [];
  showAttached();
  grow();
  answerAll(turn.id);
}

/** @param {string | null} parent */
function answerAll(parent) {
  if (!compares) return answers.answer(current, parent);
  const pair = tree.newId();
  answers.answer(current, parent, { pair, label: 'B' });
  answers.answer(current, parent, { pair, label: 'A' });
}

// -- what is shown ----------------------------------------------------------------------------------------------------

/** @type {WeakMap<Turn, HTMLElement>} */
const views = new WeakMap();
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
        const shown = views.get(one);
        if (shown && answers.isLive(one)) fill(shown, one, actions); // else it was shown when it ended
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
  const focused = document.activeElement;
  draw();
  if (focused instanceof HTMLElement && focused.dataset.key && !focused.isConnected) focusKey(focused.dataset.key);
}

/** @param {Turn} turn */
function viewOf(turn) {
  let view = views.get(turn);
  if (view) fill(view, turn, actions);
  else views.set(turn, view = turnView(turn, actions));
  return view;
}

function render() {
  closePopover();
  const sticks = isAtEnd();
  const shown = tree.path(current);
  const parts = [systemPrompt(), ...shown.map((turn) => {
    const pair = turn.pair ? tree.childrenOf(current, turn.parent).filter((one) => one.pair === turn.pair) : [];
    if (pair.length < 2) return viewOf(turn);
    pair.sort((a, b) => (a.label || '').localeCompare(b.label || ''));
    return h('div', { class: 'pair' }, ...pair.map((one) => {
      const view = viewOf(one);
      view.classList.toggle('picked', one === turn);
      return view;
    }));
  })];
  if (shown.length === 0) parts.push(welcome());
  keepFocus(() => {
    setChildren(thread, parts);
    showList();
  });
  showModel();
  const busy = answers.isBusy(current);
  sendButton.textContent = busy ? 'Stop' : 'Send';
  sendButton.classList.toggle('stop', busy);
  if (sticks) scroller.scrollTop = scroller.scrollHeight;
}

/** @type {{ of: Conversation, view: HTMLElement } | null} */
let system = null;

function systemPrompt() {
  if (system?.of === current) return system.view;
  const of = current;
  const text = h('textarea', { rows: 3, value: of.system, 'aria-label': 'System prompt', dir: 'auto', onchange: () => {
    of.system = text.value;
    tree.changesOf(of).fields.add('system');
    if (Object.keys(of.turns).length) keep(of);
  } });
  system = { of, view: h('details', { class: 'system', open: of.system !== '' }, h('summary', {}, 'System prompt'), text) };
  return system.view;
}

/** The first screen: who answers, and what can be asked of it where that is known. */
function welcome() {
  const model = modelOf(profiles[0].model);
  if (!model) return h('div', { class: 'welcome' }, h('p', { class: 'waiting' }, 'waiting for the server'));
  if (!model.generates)
    return h('div', { class: 'welcome' }, h('h2', {}, model.id),
      h('p', { class: 'dim' }, 'This model reads texts and writes none: it is for the API (embeddings, rankings).'));
  const examples = model.id === 'storyteller' ? ['Tell me a story about a fox', 'Tell me a story about the sea'] : [];
  return h('div', { class: 'welcome' }, h('h2', {}, model.id),
    h('p', { class: 'dim' }, `Runs on ${/^(localhost|127\.|\[::1\])/.test(location.host) ? 'this machine' : location.host} and reads up to ${
      model.context.toLocaleString('en')} tokens at once.${model.chats ? '' : ' It has no chat template, so it goes on with what you write.'}`),
    h('div', { class: 'row' }, ...examples.map((text) => button(text, () => { box.value = text; send(); }))));
}
