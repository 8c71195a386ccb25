// A conversation: a tree of turns, of which one path is shown. Plain data and functions; it is what is stored, exported
// and imported.

/**
 * @typedef {{ text: string, id: number, logprob: number | null, top: { text: string, id: number, logprob: number }[] }} Token
 * @typedef {{ id: string, name: string, arguments: string }} Call
 * @typedef {{ id: string, parent: string | null, role: 'user' | 'assistant' | 'tool', content: string,
 *   reasoning?: string, calls?: Call[], callId?: string, files?: { name: string, text: string }[], tokens?: Token[],
 *   model?: string, label?: string, pair?: string, finish?: string, error?: string, warnings?: string[],
 *   ids?: number[], writing?: boolean, lost?: boolean, guided?: boolean, kept?: number,
 *   used?: number, usage?: any, timings?: any }} Turn
 * `ids` are all tokens of an answer, `writing` says that it is not complete, `lost` that its connection was,
 * `guided` that it follows a form, which no other request can go on with; `used` are the tokens of the context behind it.
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
 * @returns {Turn}
 */
export function add(to, what) {
  const turn = { ...what, id: newId() };
  to.turns[turn.id] = turn;
  changesOf(to).turns.add(turn.id);
  choose(to, turn);
  return turn;
}

/**
 * Shows this one of the turns that follow the same one.
 * @param {Conversation} of
 * @param {Turn} turn
 */
export function choose(of, turn) {
  of.chosen[turn.parent ?? ''] = turn.id;
  changesOf(of).chosen.add(turn.parent ?? '');
  of.changed = Date.now();
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
  from.changed = Date.now();
  const { turns, gone, chosen } = changesOf(from);
  turns.delete(id);
  gone.add(id);
  chosen.add(id).add(parent);
}

// -- what is stored, which other tabs change, too -----------------------------------------------------------------------

/** What was changed here since it was stored.
 * @typedef {{ turns: Set<string>, gone: Set<string>, chosen: Set<string>, fields: Set<'title' | 'system'> }} Changes */

/** @type {WeakMap<Conversation, Changes>} */
const changes = new WeakMap();

/**
 * Changes of `title` or `system` are added to `fields`, those of a turn to `turns`.
 * @param {Conversation} of
 * @returns {Changes}
 */
export function changesOf(of) {
  let own = changes.get(of);
  if (!own) changes.set(of, own = { turns: new Set(), gone: new Set(), chosen: new Set(), fields: new Set() });
  return own;
}

/**
 * For storage.
 * @param {Changes} of
 */
export const asLists = (of) => Object.fromEntries(Object.entries(of).map(([name, one]) => [name, [...one]]));

/** @param {any} lists @returns {Changes} */
export const asChanges = (lists) => ({ turns: new Set(lists.turns), gone: new Set(lists.gone), chosen: new Set(lists.chosen),
  fields: new Set(lists.fields) });

/** @param {Conversation} of */
export const isChanged = (of) => Object.values(changesOf(of)).some((one) => one.size > 0);

/**
 * The changes, which count as stored from now on, unless they are given back.
 * @param {Conversation} of
 */
export function takeChanges(of) {
  const taken = changesOf(of);
  changes.delete(of);
  return taken;
}

/** @param {Conversation} of @param {Changes} taken */
export function giveBack(of, taken) {
  const now = changesOf(of);
  for (const name of /** @type {const} */ (['turns', 'gone', 'chosen', 'fields']))
    for (const one of taken[name]) /** @type {Set<string>} */ (now[name]).add(one);
}

/**
 * What is stored, with what was changed here. Nothing that another tab said is lost: a turn that was removed here stays if
 * something new follows it.
 * @param {Conversation | undefined} stored
 * @param {Conversation} ours
 * @param {Changes} changed
 * @returns {Conversation}
 */
export function merged(stored, ours, changed) {
  if (!stored) return ours;
  const result = { ...stored, turns: { ...stored.turns }, chosen: { ...stored.chosen }, changed: Math.max(stored.changed, ours.changed) };
  for (const id of changed.turns) if (ours.turns[id]) result.turns[id] = ours.turns[id];
  const needed = new Set(Object.keys(result.turns).filter((id) => !changed.gone.has(id) && !ours.turns[id])
    .flatMap((id) => ancestors(result, id).map((turn) => turn.id)));
  for (const id of changed.gone) if (!needed.has(id)) delete result.turns[id];
  for (const parent of changed.chosen)
    if (ours.chosen[parent]) result.chosen[parent] = ours.chosen[parent];
    else delete result.chosen[parent];
  for (const name of changed.fields) result[name] = ours[name];
  return result;
}

/**
 * Takes over what other tabs stored. Turns that are written or were changed here stay as they are, and what is shown is shown.
 * @param {Conversation} ours
 * @param {Conversation} stored
 * @param {(id: string) => boolean} written here
 */
export function absorb(ours, stored, written) {
  const { turns, gone, fields } = changesOf(ours);
  for (const [id, turn] of Object.entries(stored.turns)) {
    if (gone.has(id) || turns.has(id) || written(id)) continue;
    const own = ours.turns[id];
    if (!own) ours.turns[id] = turn;
    else if (own !== turn) {
      for (const name of Object.keys(own)) if (!(name in turn)) delete /** @type {any} */ (own)[name];
      Object.assign(own, turn);
    }
  }
  for (const id of Object.keys(ours.turns))
    if (!stored.turns[id] && !turns.has(id) && !written(id)) delete ours.turns[id];
  for (const [parent, child] of Object.entries(stored.chosen)) ours.chosen[parent] ??= child;
  for (const name of /** @type {const} */ (['title', 'system'])) if (!fields.has(name)) ours[name] = stored[name];
  ours.changed = Math.max(ours.changed, stored.changed);
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
    if (Array.isArray(turn.warnings)) made.warnings = turn.warnings.map(asText);
    if (typeof turn.pair === 'string') made.pair = `${result.id}/${turn.pair}`;
    if (Array.isArray(turn.calls))
      made.calls = turn.calls.map((/** @type {any} */ call) => (
        { id: asText(call?.id), name: asText(call?.name), arguments: asText(call?.arguments) }));
    if (Array.isArray(turn.files))
      made.files = turn.files.map((/** @type {any} */ f) => ({ name: asText(f?.name), text: asText(f?.text) }));
    if (Array.isArray(turn.tokens)) made.tokens = turn.tokens.map(asToken);
    if (Array.isArray(turn.ids)) made.ids = turn.ids.map(Number).filter(Number.isInteger);
    for (const name of /** @type {const} */ (['writing', 'lost', 'guided'])) if (turn[name] === true) made[name] = true;
    for (const name of /** @type {const} */ (['kept', 'used'])) if (Number.isInteger(turn[name])) made[name] = turn[name];
    if (turn.usage && typeof turn.usage === 'object') made.usage = numbers(turn.usage);
    if (turn.timings && typeof turn.timings === 'object') made.timings = numbers(turn.timings);
    if (made.timings && turn.timings.spent_ms && typeof turn.timings.spent_ms === 'object')
      made.timings.spent_ms = numbers(turn.timings.spent_ms);
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
