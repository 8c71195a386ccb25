// Shows one turn of a conversation. What its buttons do is the chat's (chat.js).
import { shareBar } from './charts.js';
import { button, copy, focusKey, h, setChildren } from './dom.js';
import { showMarkdown } from './markdown.js';
import { spentParts } from './steps.js';
import { tokenView } from './tokens.js';

/**
 * @typedef {import('./conversation.js').Turn} Turn
 * @typedef {{ live: (turn: Turn) => boolean, note: (turn: Turn) => string, elsewhere: (turn: Turn) => boolean,
 *   siblings: (turn: Turn) => Turn[], show: (turn: Turn) => void, regenerate: (turn: Turn) => void, resume: (turn: Turn) => void,
 *   isFull: (turn: Turn) => boolean, edit: (turn: Turn, content: string) => void, remove: (turn: Turn) => void,
 *   branch: (turn: Turn, place: number, id: number, text: string) => void, wantsTokens: () => boolean,
 *   answerCalls: (turn: Turn, results: string[]) => void, answered: (turn: Turn) => boolean }} Actions
 */

const longestRendered = 200000; // characters; longer texts are shown as they are

/** @param {Turn} turn @param {Actions} actions */
export function turnView(turn, actions) {
  const who = turn.role === 'user' ? 'You' : turn.role === 'tool' ? 'Result of a call' : turn.model || 'Assistant';
  const body = h('div', { class: 'turn-body' });
  const foot = h('div', { class: 'turn-foot' });
  const box = h('article', { class: `turn ${turn.role}`, 'aria-label': who },
    h('header', {}, h('strong', {}, who), turn.label ? h('span', { class: 'tag' }, turn.label) : null), body, foot);
  box.dataset.turn = turn.id;
  fill(box, turn, actions);
  return box;
}

/**
 * Texts that are being edited.
 * @type {WeakMap<Turn, HTMLElement[]>}
 */
const edited = new WeakMap();

/**
 * Shows what the turn now has; while it streams, many times.
 * @param {HTMLElement} box made by turnView
 * @param {Turn} turn
 * @param {Actions} actions
 */
export function fill(box, turn, actions) {
  const body = /** @type {HTMLElement} */ (box.querySelector(':scope > .turn-body'));
  const foot = /** @type {HTMLElement} */ (box.querySelector(':scope > .turn-foot'));
  const live = actions.live(turn);
  box.setAttribute('aria-busy', String(live));
  const editor = edited.get(turn);
  if (editor && !live) {
    foot.replaceChildren();
    return setChildren(body, editor);
  }
  /** @type {Node[]} */
  const parts = [];
  if (turn.reasoning) parts.push(reasoning(body, turn, live));
  for (const file of turn.files || [])
    parts.push(h('details', { class: 'file' }, h('summary', {}, `${file.name}, ${file.text.length} characters`),
      h('pre', { tabindex: '0', dir: 'auto' }, file.text)));
  if (turn.role === 'assistant' && actions.wantsTokens() && turn.tokens?.length)
    parts.push(tokenView(turn.id, turn.tokens, turn.kept || 0, live ? null : (place, id, text) => actions.branch(turn, place, id, text)));
  else if (turn.role === 'assistant' && turn.content.length < longestRendered)
    parts.push(rendered(body, turn.content));
  else
    parts.push(h('div', { class: 'text raw', dir: 'auto' }, turn.content));
  if (turn.role === 'assistant' && actions.wantsTokens() && !turn.tokens?.length && !live && !turn.error)
    parts.push(h('p', { class: 'dim' }, 'This answer was made without the token view; regenerate it to see its tokens.'));
  if (turn.calls?.length) parts.push(calls(turn, actions, live));
  const note = live ? actions.note(turn) || (turn.content || turn.reasoning || turn.calls?.length ? '' : 'waiting')
    : turn.writing && actions.elsewhere(turn) ? 'being written in another tab' : '';
  if (note) parts.push(h('span', { class: 'waiting' }, note));
  if (turn.error) parts.push(h('p', { class: 'wrong', role: 'alert' }, turn.error));
  for (const warning of turn.warnings || []) parts.push(h('p', { class: 'warning' }, warning));
  if (!live && turn.role === 'assistant') parts.push(...cut(turn, actions));
  setChildren(body, parts);
  foot.replaceChildren(...(live || turn.writing && actions.elsewhere(turn) ? [] : footer(body, foot, turn, actions)));
}

/** @param {HTMLElement} body @param {string} content */
function rendered(body, content) {
  const text = /** @type {HTMLElement | null} */ (body.querySelector(':scope > .text:not(.raw)')) ?? h('div', { class: 'text' });
  showMarkdown(text, content);
  return text;
}

/**
 * Why the answer ends where it does, and going on with it.
 * @param {Turn} turn
 * @param {Actions} actions
 * @returns {Node[]}
 */
function cut(turn, actions) {
  const why = turn.writing ? 'This answer was interrupted.' : turn.lost ? ''
    : turn.finish === 'length' ? 'This answer was cut at the limit of tokens.' : turn.finish === 'timeout' ? 'This answer ran out of time.' : null;
  if (why === null || turn.writing && actions.elsewhere(turn) || turn.calls?.length || actions.answered(turn)) return [];
  if (turn.finish === 'length' && actions.isFull(turn))
    return [h('p', { class: 'cut dim' }, 'This answer was cut, as the context is full. Begin a new conversation, or delete turns.')];
  if (turn.guided && (turn.content || turn.reasoning))
    return [h('p', { class: 'cut dim' }, `${why} A form cannot be continued: raise max_tokens in the settings and regenerate it.`)];
  return [h('p', { class: 'cut dim' }, why, ' ', button('Continue', () => actions.resume(turn), { class: 'main', 'data-key': `${turn.id}-continue` }))];
}

/** @param {HTMLElement} body @param {Turn} turn @param {boolean} live */
function reasoning(body, turn, live) {
  const view = /** @type {HTMLElement | null} */ (body.querySelector(':scope > details.reasoning'))
    ?? h('details', { class: 'reasoning' }, h('summary'), h('div', { class: 'text raw', dir: 'auto' }));
  const [summary, text] = view.children;
  summary.textContent = live && !turn.content ? 'Thinking …' : 'Thoughts';
  text.textContent = turn.reasoning || '';
  return view;
}

/** What is typed as results of a turn's calls: the turn may be drawn again meanwhile.
 * @type {WeakMap<Turn, string[]>} */
const typed = new WeakMap();

/** @param {Turn} turn @param {Actions} actions @param {boolean} live */
function calls(turn, actions, live) {
  const all = turn.calls || [];
  const list = all.map((call) => h('div', { class: 'call' }, h('code', {}, `${call.name}(${call.arguments})`)));
  if (live || actions.answered(turn)) return h('div', { class: 'calls' }, ...list);
  const texts = typed.get(turn) || all.map(() => '');
  typed.set(turn, texts);
  const inputs = all.map((call, i) => {
    const input = /** @type {HTMLTextAreaElement} */ (h('textarea', { rows: 2, 'aria-label': `Result of ${call.name}`,
      placeholder: `Result of ${call.name}`, 'data-key': `${turn.id}-result-${i}` }));
    input.value = texts[i];
    input.addEventListener('input', () => { texts[i] = input.value; });
    return input;
  });
  return h('div', { class: 'calls' }, ...list.flatMap((one, i) => [one, inputs[i]]),
    button('Send the results', () => actions.answerCalls(turn, inputs.map((input) => input.value)), { class: 'main' }));
}

/** @param {HTMLElement} body @param {HTMLElement} foot @param {Turn} turn @param {Actions} actions */
function footer(body, foot, turn, actions) {
  const siblings = actions.siblings(turn);
  const at = siblings.indexOf(turn);
  const parts = [];
  if (siblings.length > 1 && !turn.pair)
    parts.push(h('span', { class: 'branches' },
      button('‹', () => actions.show(siblings[at - 1]), { class: 'quiet', disabled: at === 0, 'aria-label': 'The version before',
        'data-key': `${turn.parent}-before` }),
      h('span', { class: 'num' }, `${at + 1}/${siblings.length}`),
      button('›', () => actions.show(siblings[at + 1]), { class: 'quiet', disabled: at + 1 === siblings.length,
        'aria-label': 'The version after', 'data-key': `${turn.parent}-after` })));
  if (turn.pair && siblings.length > 1)
    parts.push(button('Go on with this', () => actions.show(turn), { class: 'quiet pick', 'data-key': `${turn.id}-pick` }));
  if (turn.finish === 'cancelled' && turn.role === 'assistant' && !turn.guided && !turn.calls?.length && !actions.answered(turn))
    parts.push(button('Continue', () => actions.resume(turn), { class: 'quiet' }));
  parts.push(button('Copy', () => copy(turn.content), { class: 'quiet' }));
  if (turn.role !== 'tool') parts.push(button('Edit', () => edit(body, foot, turn, actions), { class: 'quiet', 'data-key': `${turn.id}-edit` }));
  if (turn.role === 'assistant') parts.push(button('Regenerate', () => actions.regenerate(turn), { class: 'quiet' }));
  parts.push(button('Delete', () => actions.remove(turn), { class: 'quiet' }));
  const facts = factsOf(turn);
  if (facts) parts.push(h('span', { class: 'dim facts' }, facts));
  if (turn.timings?.spent_ms) parts.push(spentView(turn));
  return parts;
}

/**
 * Shown for these timings: what a turn is drawn with again, so that it stays open.
 * @type {WeakMap<object, HTMLElement>}
 */
const spentViews = new WeakMap();

/**
 * Where its time went: a bar by cause, whose click tells the numbers.
 * @param {Turn} turn
 */
function spentView(turn) {
  const known = spentViews.get(turn.timings);
  if (known) return known;
  /** @type {Record<string, number>} */
  const spent = turn.timings.spent_ms;
  const parts = spentParts.filter(([name]) => spent[name] > 0);
  const whole = parts.reduce((sum, [name]) => sum + spent[name], 0);
  const told = (/** @type {string} */ name, /** @type {string} */ text) => `${text} ${spent[name].toFixed(1)} ms`;
  const shade = (/** @type {string} */ name) => {
    const made = h('i');
    made.style.background = `var(--${name})`;
    return made;
  };
  const bar = shareBar(parts.map(([name, colour, text]) => ({ shade: colour, share: spent[name] / whole, text: told(name, text) })));
  const view = h('details', { class: 'spent' }, h('summary', { title: 'Where the time went' }, bar),
    h('div', { class: 'legend' }, ...parts.map(([name, colour, text]) => h('span', {}, shade(colour), told(name, text))),
      h('span', {}, `in all ${whole.toFixed(1)} ms`)));
  spentViews.set(turn.timings, view);
  return view;
}

/** @param {HTMLElement} body @param {HTMLElement} foot @param {Turn} turn @param {Actions} actions */
function edit(body, foot, turn, actions) {
  const text = h('textarea', { class: 'edit', rows: Math.min(16, turn.content.split('\n').length + 2), value: turn.content,
    'aria-label': 'Edit the text', dir: 'auto' });
  const end = () => {
    edited.delete(turn);
    fill(/** @type {HTMLElement} */ (body.parentElement), turn, actions);
    focusKey(`${turn.id}-edit`);
  };
  const editor = [text, h('div', { class: 'row' },
    button(turn.role === 'user' ? 'Send' : 'Keep', () => { end(); actions.edit(turn, text.value); }, { class: 'main' }),
    button('Cancel', end, { class: 'quiet' }))];
  edited.set(turn, editor);
  setChildren(body, editor);
  foot.replaceChildren();
  text.focus();
}

const ends = new Map([['length', 'cut'], ['cancelled', 'stopped'], ['tool_calls', 'calls tools'], ['timeout', 'out of time'],
  ['content_filter', "ended by this server's policy"]]);

/** @param {Turn} turn */
function factsOf(turn) {
  const facts = [];
  const { usage, timings } = turn;
  if (turn.kept) facts.push(`branched after ${turn.kept} tokens`);
  if (usage?.completion_tokens !== undefined) facts.push(`${usage.completion_tokens} tokens`);
  if (timings?.decode_ms > 0 && usage?.completion_tokens > 1)
    facts.push(`${((usage.completion_tokens - 1) / timings.decode_ms * 1000).toFixed(1)} tokens/s`);
  if (timings?.prefill_ms !== undefined)
    facts.push(`first after ${Math.round((timings.queue_ms || 0) + timings.prefill_ms)} ms`);
  if (usage?.prompt_tokens !== undefined)
    facts.push(`prompt of ${usage.prompt_tokens}${timings?.cached_tokens > 0 ? `, ${timings.cached_tokens} shared` : ''}`);
  if (timings?.draft_n > 0) facts.push(`${timings.draft_n_accepted} of ${timings.draft_n} guesses right`);
  if (turn.finish && ends.has(turn.finish)) facts.push(/** @type {string} */ (ends.get(turn.finish)));
  return facts.join(' · ');
}
