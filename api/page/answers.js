// Answers that are under way: their requests, the limit that each has, another try where the server is busy, going on with one
// that was cut, and the calls of tools in them. What is shown is the chat's (chat.js).
import { announce } from './dom.js';
import { call, request } from './link.js';
import * as tree from './conversation.js';
import { limitOf, modelOf } from './models.js';
import { fieldsOf, profiles } from './settings.js';
import { keep } from './store.js';
import { codeOf, run, toolFields } from './tools.js';

/**
 * @typedef {import('./conversation.js').Turn} Turn
 * @typedef {import('./conversation.js').Conversation} Conversation
 * @typedef {import('./conversation.js').Token} Token
 */

const passing = ['rate_limit_exceeded', 'unavailable']; // errors that another try may not meet
const mostRounds = 8, shownAlternatives = 5, mostTries = 8, longestPause = 30; // s

/**
 * By turn; `note` is what it waits for.
 * @type {Map<string, { stop: () => void, of: Conversation, note: string }>}
 */
const live = new Map();

/** Set by the chat. */
export const shows = {
  wantsTokens: () => false,
  /**
   * News of a turn.
   * @type {(of: Conversation, turn: Turn) => void}
   */
  turn: () => {},
  /**
   * Other turns than before, or one that is complete.
   * @type {(of: Conversation) => void}
   */
  all: () => {},
};

/** @param {{ id: string }} turn */
export const isLive = (turn) => live.has(turn.id);
/** @param {Turn} turn */
export const noteOf = (turn) => live.get(turn.id)?.note ?? '';
/** Where answers are under way. */
export const busy = () => [...new Set([...live.values()].map((one) => one.of))];
/** @param {Conversation} of */
export const isBusy = (of) => [...live.values()].some((one) => one.of === of);

/**
 * @param {Conversation} of
 * @param {Turn} [turn] and those that follow; else all
 */
export function stop(of, turn) {
  for (const [id, one] of live) if (one.of === of && (!turn || tree.ancestors(of, id).includes(turn))) one.stop();
}

/** @param {Turn} turn */
const profileOf = (turn) => profiles[turn.label === 'B' ? 1 : 0];

/** @param {Conversation} of @param {Turn} turn */
function changed(of, turn) {
  tree.changesOf(of).turns.add(turn.id);
  of.changed = Date.now();
  keep(of);
}

/**
 * Adds an answer to a turn and streams it.
 * @param {Conversation} of
 * @param {string | null} parent
 * @param {Partial<Turn>} [more]
 * @param {number} [rounds] of calls that were answered by functions
 */
export function answer(of, parent, more = {}, rounds = 0) {
  const { model } = profiles[more.label === 'B' ? 1 : 0];
  begin(of, tree.add(of, { parent, role: 'assistant', content: '', model: modelOf(model)?.id, ...more }), rounds);
}

/** @param {Conversation} of @param {Turn} turn that is empty @param {number} rounds */
function begin(of, turn, rounds) {
  write(of, turn, rounds, async () => {
    const fields = { ...fieldsOf(profileOf(turn)), ...toolFields() };
    return withLimit(fields, asked(of, turn, fields));
  });
}

/**
 * What is asked, by messages or as a text.
 * @param {Conversation} of
 * @param {Turn} turn
 * @param {Record<string, any>} fields
 */
function asked(of, turn, fields) {
  const turns = tree.ancestors(of, turn.parent);
  if (modelOf(fields.model)?.chats ?? true) return { messages: tree.messages(of.system, turns) };
  delete fields.tools;
  return { prompt: of.system + turns.map(tree.textOf).join('') };
}

/**
 * With a limit of tokens that the context has room for.
 * @param {Record<string, any>} fields
 * @param {Record<string, any>} what is asked
 */
async function withLimit(fields, what) {
  const { model } = fields, context = modelOf(model)?.context ?? 0, limit = fields.max_tokens ?? limitOf(model);
  // A token has a byte at least, and templates add some.
  const bytes = new TextEncoder().encode(JSON.stringify([what, fields.tools])).length;
  const room = bytes + 512 + limit <= context ? limit : context - (await prompt(fields, what)).length;
  return { ...fields, ...what, max_tokens: Math.max(1, Math.min(limit, room)) };
}

/** @param {Record<string, any>} fields @param {Record<string, any>} what @returns {Promise<number[]>} */
async function prompt({ model, tools, reasoning_effort, chat_template_kwargs }, what) {
  if (Array.isArray(what.prompt)) return what.prompt;
  return (await (await call('/tokenize', { model, tools, reasoning_effort, chat_template_kwargs, ...what })).json()).tokens;
}

/**
 * Whether the model that wrote an answer is there: others have other tokens.
 * @param {Turn} turn
 */
const isServed = (turn) => turn.model !== undefined && modelOf(turn.model)?.id === turn.model;

/**
 * Of the model that wrote an answer, if it is there.
 * @param {Turn} turn
 * @returns {Record<string, any>}
 */
function fieldsFor(turn) {
  const profile = profileOf(turn);
  return { ...fieldsOf(isServed(turn) ? { ...profile, model: turn.model ?? '' } : profile), ...toolFields() };
}

/**
 * Goes on with an answer that was cut, by exactly its tokens; with its text where calls or thoughts may follow, which only
 * chats have.
 * @param {Conversation} of
 * @param {Turn} turn
 */
export function resume(of, turn) {
  const ids = isServed(turn) && turn.ids || [], { content } = turn;
  for (const name of /** @type {const} */ (['error', 'lost', 'finish', 'warnings'])) delete turn[name];
  if (!content && !turn.reasoning && !turn.ids?.length) return begin(of, turn, 0);
  write(of, turn, 0, async () => {
    const fields = fieldsFor(turn);
    const before = asked(of, turn, fields);
    if (before.messages && (fields.tools || !ids.length || !content)) {
      turn.content = content.trimEnd(); // what a template leaves; the model writes the rest again
      delete turn.ids;
      return withLimit({ ...fields, continue_final_message: true, add_generation_prompt: false },
        { messages: [...before.messages, ...tree.messages('', [turn])] });
    }
    return exactly(fields, before, ids, content);
  });
}

/**
 * A completion that goes on behind tokens of an answer.
 * @param {Record<string, any>} fields
 * @param {Record<string, any>} before what is asked
 * @param {number[]} ids
 * @param {string} text of an answer whose tokens are not known
 */
async function exactly(fields, before, ids, text) {
  if (!ids.length) return withLimit(fields, { prompt: before.prompt + text });
  const all = [...await prompt(fields, before), ...ids];
  for (const name of ['reasoning_effort', 'chat_template_kwargs', 'tools']) delete fields[name];
  return withLimit(fields, { prompt: all });
}

/**
 * Another answer that begins with the tokens of this one up to `place`, then has another token: exactly these tokens go to
 * the model, and what comes before them is found in its prefix cache.
 * @param {Conversation} of
 * @param {Turn} turn
 * @param {number} place
 * @param {number} id
 * @param {string} text
 */
export async function branch(of, turn, place, id, text) {
  if (!isServed(turn)) throw new Error(`${turn.model ?? 'The model that wrote this'} is not served now, and other models have other tokens.`);
  const old = turn.tokens || [];
  const top = old[place].top;
  const tokens = [...old.slice(0, place), { text, id, top, logprob: top.find((one) => one.id === id)?.logprob ?? null }];
  const ids = tokens.map((token) => token.id);
  const begun = (await (await call('/detokenize', { model: turn.model, tokens: ids })).json()).prompt;
  const made = tree.add(of, { parent: turn.parent, role: 'assistant', content: begun, tokens, ids, kept: ids.length, model: turn.model,
    label: turn.label });
  write(of, made, 0, async () => {
    const fields = fieldsFor(made);
    return exactly(fields, asked(of, turn, fields), [...ids], begun);
  });
}

// -- requests ---------------------------------------------------------------------------------------------------------

/**
 * Writes a turn by a request, whose fields may take a moment.
 * @param {Conversation} of
 * @param {Turn} turn
 * @param {number} rounds
 * @param {() => Promise<Record<string, any>>} ask
 */
async function write(of, turn, rounds, ask) {
  let stopped = false;
  turn.writing = true;
  live.set(turn.id, { of, note: '', stop: () => { stopped = true; } });
  changed(of, turn);
  shows.all(of);
  announce('The answer is being written');
  try {
    const fields = await ask();
    const chats = fields.messages !== undefined;
    if (shows.wantsTokens() && !fields.use_beam_search)
      Object.assign(fields, chats ? { logprobs: true, top_logprobs: shownAlternatives } : { logprobs: shownAlternatives });
    if (fields.response_format || fields.structured_outputs) turn.guided = true;
    if (stopped) end(of, turn, rounds, { type: 'done', choices: [{ finish_reason: 'cancelled' }] });
    else send(of, turn, rounds, fields, 1);
  } catch (why) {
    end(of, turn, rounds, { type: 'error', error: { message: why instanceof Error ? why.message : String(why) } });
  }
}

/** @param {Conversation} of @param {Turn} turn @param {number} rounds @param {Record<string, any>} fields @param {number} tries */
function send(of, turn, rounds, fields, tries) {
  const before = { usage: turn.usage, timings: turn.timings };
  let begun = false;
  const handle = request({ ...fields, type: 'generate' }, (frame) => {
    if (frame.type === 'token' && frame.index === 0) {
      begun = true;
      hear(turn, frame);
      changed(of, turn);
      shows.turn(of, turn);
    } else if (frame.type === 'error' && !begun && tries < mostTries && passing.includes(frame.error.code)) {
      wait(of, turn, Math.min(longestPause, Math.max(frame.retry_after ?? 1, 2 ** (tries - 1))), tries, () => send(of, turn, rounds, fields, tries + 1));
    } else if (frame.type === 'done' || frame.type === 'error') {
      end(of, turn, rounds, frame, before);
    }
  });
  live.set(turn.id, { of, note: '', stop: handle.stop });
}

/**
 * Waits with the next try, and says so.
 * @param {Conversation} of
 * @param {Turn} turn
 * @param {number} seconds
 * @param {number} tries
 * @param {() => void} then
 */
function wait(of, turn, seconds, tries, then) {
  let left = Math.ceil(seconds);
  const tell = () => {
    const one = live.get(turn.id);
    if (one) one.note = `The server is busy. Next try in ${left} s (${tries + 1} of ${mostTries})`;
    shows.turn(of, turn);
  };
  const ticking = setInterval(() => {
    if (--left > 0) return tell();
    clearInterval(ticking);
    then();
  }, 1000);
  live.set(turn.id, { of, note: '', stop: () => {
    clearInterval(ticking);
    end(of, turn, 0, { type: 'done', choices: [{ finish_reason: 'cancelled' }] });
  } });
  tell();
}

/**
 * @param {Conversation} of
 * @param {Turn} turn
 * @param {number} rounds
 * @param {Record<string, any>} frame
 * @param {{ usage?: any, timings?: any }} [before] of the part that was there
 */
function end(of, turn, rounds, frame, before = {}) {
  live.delete(turn.id);
  delete turn.writing;
  if (frame.type === 'error') {
    turn.error = frame.error.message;
    if (frame.error.lost) turn.lost = true;
  } else {
    turn.finish = frame.choices[0].finish_reason;
    turn.usage = sum(before.usage, frame.usage, 'completion_tokens');
    turn.timings = sum(before.timings, frame.timings, 'decode_ms');
    if (before.timings?.spent_ms && frame.timings?.spent_ms)
      turn.timings.spent_ms = sumOf(before.timings.spent_ms, frame.timings.spent_ms);
    if (frame.usage) turn.used = frame.usage.prompt_tokens + frame.usage.completion_tokens;
    if (frame.warnings) turn.warnings = frame.warnings;
  }
  changed(of, turn);
  announce(turn.error ?? 'The answer is complete');
  shows.all(of);
  if (turn.calls?.length && !turn.error) runCalls(of, turn, rounds);
}

/**
 * Of an answer in parts: the first one's numbers, and the sum of one.
 * @param {any} first
 * @param {any} then
 * @param {string} name
 */
function sum(first, then, name) {
  return first && then ? { ...first, [name]: first[name] + then[name] } : then ?? first;
}

/** @param {Record<string, number>} a @param {Record<string, number>} b */
function sumOf(a, b) {
  return Object.fromEntries([...new Set([...Object.keys(a), ...Object.keys(b)])].map((name) => [name, (a[name] || 0) + (b[name] || 0)]));
}

/** @param {Turn} turn @param {import('./link.js').Frame} frame */
function hear(turn, frame) {
  turn.content += frame.text;
  (turn.ids ??= []).push(...frame.token_ids);
  if (frame.reasoning_content) turn.reasoning = (turn.reasoning || '') + frame.reasoning_content;
  for (const delta of frame.tool_calls || []) takeCall(turn, delta);
  (frame.logprobs || []).forEach((/** @type {any} */ one, /** @type {number} */ i) => {
    const ids = frame.top_token_ids?.[i] || [];
    (turn.tokens ??= []).push({ text: one.token, id: frame.token_ids[i], logprob: one.logprob,
      top: one.top_logprobs.map((/** @type {any} */ other, /** @type {number} */ k) => (
        { text: other.token, id: ids[k], logprob: other.logprob })) });
  });
}

// -- calls of tools ---------------------------------------------------------------------------------------------------

/** @param {Turn} turn @param {any} delta of OpenAI's streams */
function takeCall(turn, delta) {
  const calls = (turn.calls ??= []);
  const one = (calls[delta.index] ??= { id: '', name: '', arguments: '' });
  if (delta.id) one.id = delta.id;
  if (delta.function?.name) one.name = delta.function.name;
  one.arguments += delta.function?.arguments ?? '';
}

/** @param {Conversation} of @param {Turn} turn @param {number} rounds */
async function runCalls(of, turn, rounds) {
  const codes = (turn.calls || []).map((one) => codeOf(one.name));
  if (rounds >= mostRounds || codes.some((code) => !code)) return;
  const results = await Promise.all((turn.calls || []).map((one, i) =>
    run(codes[i], one.arguments).catch((why) => `Error: ${why.message}`)));
  answerCalls(of, turn, results, rounds + 1);
}

/** @param {Conversation} of @param {Turn} turn @param {string[]} results @param {number} [rounds] */
export function answerCalls(of, turn, results, rounds = mostRounds) {
  let parent = turn.id;
  (turn.calls || []).forEach((one, i) => {
    parent = tree.add(of, { parent, role: 'tool', content: results[i], callId: one.id }).id;
  });
  answer(of, parent, turn.label ? { label: turn.label } : {}, rounds);
}
