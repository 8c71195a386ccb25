// A conversation: a tree of turns, of which one path is shown. Plain data and functions; it is what is stored, exported
// and imported.

/**
 * @typedef {{ text: string, id: number, logprob: number | null, top: { text: string, id: number, logprob: number }[] }} Token
 * @typedef {{ id: string, name: string, arguments: string }} Call
 * @typedef {{ id: string, parent: string | null, role: 'user' | 'assistant' | 'tool', content: string,
 *   reasoning?: string, calls?: Call[], callId?: string, files?: { name: string, text: string }[], tokens?: Token[],
 *   model?: string, label?: string, pair?: string, finish?: string, error?: string, warnings?: string[],
 *   promptIds?: number[], kept?: number, usage?: any, timings?: any }} Turn
 * @typedef {{ id: string, title: string, changed: number, system: string, turns: Record<string, Turn>,
 *   chosen: Record<string, string> }} Conversation
 */

export const FORMAT = 'troupe-conversations-1';

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(36).padStart(2, '0')).join('');
}

/** @returns {Conversation} */
export function newConversation() {
  return { id: newId(), title: 'New conversation', changed: Date.now(), system: '', turns: {}, chosen: {} };
}

/**
 * Those that follow a turn (null: the first ones), oldest first.
 * @param {Conversation} of
 * @param {string | null} parent
 */
export function childrenOf(of, parent) {
  return Object.values(of.turns).filter((turn) => turn.parent === parent);
}

/**
 * The shown path.
 * @param {Conversation} of
 * @param {string | null} [until] ends with this turn
 * @returns {Turn[]}
 */
export function path(of, until) {
  /** @type {Map<string | null, Turn[]>} */
  const after = new Map();
  for (const turn of Object.values(of.turns)) {
    const list = after.get(turn.parent);
    if (list) list.push(turn);
    else after.set(turn.parent, [turn]);
  }
  const result = [];
  /** @type {string | null} */
  let at = null;
  for (;;) {
    const next = after.get(at);
    if (!next || at !== null && at === until) return result;
    /** @type {string | undefined} */
    const wanted = of.chosen[at ?? ''];
    /** @type {Turn} */
    const turn = next.find((one) => one.id === wanted) || next[next.length - 1];
    result.push(turn);
    at = turn.id;
  }
}

/**
 * The turns that lead to one, with it.
 * @param {Conversation} of
 * @param {string | null} id
 */
export function ancestors(of, id) {
  /** @type {Turn[]} */
  const result = [];
  for (let at = id; at !== null && of.turns[at]; at = of.turns[at].parent) result.unshift(of.turns[at]);
  return result;
}

/**
 * Adds a turn and shows it.
 * @param {Conversation} to
 * @param {Omit<Turn, 'id'>} what
 */
export function add(to, what) {
  const turn = { ...what, id: newId() };
  to.turns[turn.id] = turn;
  to.chosen[turn.parent ?? ''] = turn.id;
  to.changed = Date.now();
  return turn;
}

/**
 * Removes a turn and all that follow it.
 * @param {Conversation} from
 * @param {string} id
 */
export function remove(from, id) {
  for (const child of childrenOf(from, id)) remove(from, child.id);
  const parent = from.turns[id]?.parent ?? '';
  delete from.turns[id];
  delete from.chosen[id];
  if (from.chosen[parent] === id) delete from.chosen[parent];
}

/**
 * What the model gets of a turn's text.
 * @param {Turn} turn
 */
export function textOf(turn) {
  const files = (turn.files || []).map((file) => `${file.name}:\n\`\`\`\n${file.text}\n\`\`\`\n\n`);
  return files.join('') + turn.content;
}

/**
 * As messages of a chat request.
 * @param {string} system
 * @param {Turn[]} turns
 */
export function messages(system, turns) {
  /** @type {any[]} */
  const result = system.trim() ? [{ role: 'system', content: system }] : [];
  for (const turn of turns) {
    if (turn.role === 'tool') result.push({ role: 'tool', tool_call_id: turn.callId, content: turn.content });
    else if (turn.role === 'user') result.push({ role: 'user', content: textOf(turn) });
    else {
      /** @type {any} */
      const message = { role: 'assistant', content: turn.content };
      if (turn.reasoning) message.reasoning_content = turn.reasoning;
      if (turn.calls?.length)
        message.tool_calls = turn.calls.map((call) => ({
          id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
      result.push(message);
    }
  }
  return result;
}

/** @param {Conversation[]} all */
export function exported(all) {
  return JSON.stringify({ format: FORMAT, conversations: all }, null, 1);
}

/**
 * What a file holds, which anybody may have written: everything is checked. Throws a sentence.
 * @param {string} text
 * @returns {Conversation[]}
 */
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON.');
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations))
    throw new Error(`The file is not an export of this page (its "format" is not "${FORMAT}").`);
  return file.conversations.map(checked);
}

/** @param {any} given @returns {Conversation} */
function checked(given) {
  const result = newConversation(); // with an id of its own, so that nothing is overwritten
  result.title = asText(given?.title) || 'Imported';
  result.system = asText(given?.system);
  result.changed = Number(given?.changed) || Date.now();
  const turns = Object.values(given?.turns || {});
  /** @type {Map<string, string>} */
  const ids = new Map();
  for (const turn of turns) ids.set(asText(/** @type {any} */ (turn)?.id), newId());
  for (const one of turns) {
    const turn = /** @type {any} */ (one);
    const role = turn?.role;
    if (role !== 'user' && role !== 'assistant' && role !== 'tool') throw new Error('A turn of the file has no role.');
    const parent = turn.parent === null ? null : ids.get(asText(turn.parent));
    if (parent === undefined) throw new Error('A turn of the file follows one that is not there.');
    const id = /** @type {string} */ (ids.get(asText(turn.id)));
    /** @type {Turn} */
    const made = { id, parent, role, content: asText(turn.content) };
    for (const name of /** @type {const} */ (['reasoning', 'callId', 'model', 'label', 'finish', 'error']))
      if (typeof turn[name] === 'string') made[name] = turn[name];
    if (typeof turn.pair === 'string') made.pair = `${result.id}/${turn.pair}`;
    if (Array.isArray(turn.calls))
      made.calls = turn.calls.map((/** @type {any} */ call) => (
        { id: asText(call?.id), name: asText(call?.name), arguments: asText(call?.arguments) }));
    if (Array.isArray(turn.files))
      made.files = turn.files.map((/** @type {any} */ f) => ({ name: asText(f?.name), text: asText(f?.text) }));
    if (Array.isArray(turn.tokens)) made.tokens = turn.tokens.map(asToken);
    if (Array.isArray(turn.promptIds)) made.promptIds = turn.promptIds.map(Number).filter(Number.isInteger);
    if (Number.isInteger(turn.kept)) made.kept = turn.kept;
    if (turn.usage && typeof turn.usage === 'object') made.usage = numbers(turn.usage);
    if (turn.timings && typeof turn.timings === 'object') made.timings = numbers(turn.timings);
    result.turns[id] = made;
  }
  for (const turn of Object.values(result.turns)) if (loops(result, turn)) throw new Error('The turns form a loop.');
  for (const [parent, child] of Object.entries(given?.chosen || {})) {
    const to = ids.get(asText(child));
    if (to) result.chosen[parent === '' ? '' : ids.get(parent) || ''] = to;
  }
  return result;
}

/** @param {Conversation} of @param {Turn} turn */
function loops(of, turn) {
  const seen = new Set([turn.id]);
  for (let at = turn.parent; at !== null; at = of.turns[at].parent) {
    if (seen.has(at)) return true;
    seen.add(at);
  }
  return false;
}

/** @param {any} value */
function asText(value) {
  return typeof value === 'string' ? value : '';
}

/** @param {any} value @returns {Token} */
function asToken(value) {
  const one = (/** @type {any} */ v) => ({ text: asText(v?.text), id: Number(v?.id) || 0, logprob: Number(v?.logprob) || 0 });
  return { ...one(value), logprob: value?.logprob === null ? null : one(value).logprob,
    top: Array.isArray(value?.top) ? value.top.map(one) : [] };
}

/** @param {any} value */
function numbers(value) {
  return Object.fromEntries(Object.entries(value).filter(([, v]) => typeof v === 'number'));
}
