// What lasts in the browser: conversations in IndexedDB, settings in localStorage. A conversation may be open in several tabs:
// each stores what was changed in it, and tells the others.
import { absorb, asChanges, asLists, changesOf, giveBack, merged, newId, takeChanges } from './conversation.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */

/**
 * What the page does with news: `written`: this tab writes this turn, `writing`: and turns of these conversations; `found`: another tab stored a conversation;
 * `gone`: one was deleted; `trouble`: what cannot be kept and what to do, or nothing, for each of two kinds.
 * @typedef {{ written: (id: string) => boolean, writing: () => Conversation[], known: (id: string) => Conversation | undefined,
 *   found: (what: Conversation) => void, gone: (id: string) => void,
 *   trouble: (kind: 'chats' | 'settings', text: string) => void }} Listener
 */

const soon = 250, atRest = 2, latest = 2000; // ms; saves may take a third of the time
const writtenElsewhere = 65000, stillWrites = 10000; // ms since another tab said so, which it repeats; tabs behind others wake once a minute

/** @type {Listener} */
let listener;
/** @type {IDBDatabase | null} */
let database = null;
const channel = new BroadcastChannel('troupe');

/**
 * Rejects where there is no storage.
 * @returns {Promise<IDBDatabase>}
 */
function open() {
  return new Promise((done, fail) => {
    if (database) return done(database);
    const asked = indexedDB.open('troupe', 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore('conversations', { keyPath: 'id' });
    asked.onerror = () => fail(asked.error);
    asked.onsuccess = () => {
      database = asked.result;
      database.onclose = () => { database = null; };
      done(database);
    };
  });
}

/**
 * Resolves once all of it is stored, with what `work` passes to its second argument; the third gives up.
 * @template T
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore, result: (value: T) => void, refuse: (why: unknown) => void) => void} work
 * @returns {Promise<T>}
 */
async function transact(mode, work) {
  const transaction = (await open()).transaction('conversations', mode);
  return new Promise((done, fail) => {
    /** @type {T} */
    let result;
    transaction.oncomplete = () => done(result);
    transaction.onabort = () => fail(transaction.error);
    work(transaction.objectStore('conversations'), (value) => { result = value; }, (why) => {
      fail(why);
      transaction.abort();
    });
  });
}

/**
 * Newest first.
 * @param {Listener} hears
 * @returns {Promise<Conversation[]>}
 */
export async function loadAll(hears) {
  listener = hears;
  channel.onmessage = ({ data }) => hear(data);
  addEventListener('pagehide', leave);
  setInterval(() => listener.writing().forEach((one) => tellOthers(one)), stillWrites);
  try {
    /** @type {Conversation[]} */
    const all = await transact('readonly', (store, result) => {
      const asked = store.getAll();
      asked.onsuccess = () => result(asked.result);
    });
    takeLeft(all);
    return all.sort((a, b) => b.changed - a.changed);
  } catch {
    listener.trouble('chats', 'This browser lets the page store nothing, so conversations last until it is closed. Export those that you want to keep.');
    return [];
  }
}

// -- saving -----------------------------------------------------------------------------------------------------------

/** @type {Set<Conversation>} */
const waiting = new Set();
/**
 * What is being stored of each.
 * @type {Map<Conversation, import('./conversation.js').Changes>}
 */
const underWay = new Map();
/** @type {number | undefined} */
let timer;
let lastCost = 0;

const pauseBetween = () => Math.min(latest, Math.max(soon, atRest * lastCost));

/**
 * Stores what was changed in a conversation, soon.
 * @param {Conversation} what
 */
export function keep(what) {
  waiting.add(what);
  if (!underWay.size) timer ??= setTimeout(saveWaiting, pauseBetween());
}

async function saveWaiting() {
  timer = undefined;
  const begun = performance.now();
  for (const one of waiting) underWay.set(one, takeChanges(one));
  waiting.clear();
  for (const [one, taken] of underWay) {
    await save(one, taken);
    underWay.delete(one);
  }
  lastCost = performance.now() - begun;
  if (waiting.size) timer = setTimeout(saveWaiting, pauseBetween());
}

/** @param {Conversation} what @param {import('./conversation.js').Changes} taken */
async function save(what, taken) {
  try {
    const stored = await transact('readwrite', (store, result, refuse) => {
      const asked = store.get(what.id);
      asked.onsuccess = () => {
        try {
          const whole = merged(asked.result, what, taken);
          store.put(whole);
          result(whole);
        } catch (why) {
          refuse(why);
        }
      };
    });
    if (stored !== what) absorb(what, /** @type {Conversation} */ (stored), listener.written);
    listener.trouble('chats', '');
    tellOthers(what);
  } catch (why) {
    giveBack(what, taken);
    listener.trouble('chats', sentence(why));
  }
}

/** @param {unknown} why */
function sentence(why) {
  const full = why instanceof DOMException && why.name === 'QuotaExceededError';
  return full ? 'This conversation is not saved: the browser’s storage is full. Delete conversations, or export it.'
    : 'This conversation is not saved: the browser refuses to store it. Try another browser, or export it.';
}

const left = `troupe.left.${newId()}`; // this tab's

/** The page is left: what is not stored yet waits elsewhere, as browsers drop transactions that begin now. */
function leave() {
  for (const one of listener.writing()) channel.postMessage({ kept: one.id, writes: [] });
  for (const [one, taken] of underWay) giveBack(one, taken);
  const whole = [...new Set([...underWay.keys(), ...waiting])].map((what) => ({ what, changes: asLists(changesOf(what)) }));
  try {
    if (whole.length) localStorage.setItem(left, JSON.stringify(whole));
  } catch { /* full */ }
}

/**
 * Adds what pages that were left could not store.
 * @param {Conversation[]} all
 */
function takeLeft(all) {
  for (const key of Object.keys(localStorage).filter((name) => name.startsWith('troupe.left.'))) {
    /** @type {{ what: Conversation, changes: any }[]} */
    const found = JSON.parse(localStorage.getItem(key) ?? '[]');
    for (const { what, changes } of found) {
      const at = all.findIndex((one) => one.id === what.id), stored = all[at];
      const changed = asChanges(changes);
      for (const id of changed.turns) // a tab that came back may have gone on
        if (stored?.turns[id] && lengthOf(stored.turns[id]) > lengthOf(what.turns[id])) changed.turns.delete(id);
      const whole = merged(stored, what, changed);
      if (stored) all[at] = whole;
      else all.push(whole);
      giveBack(whole, changed);
      keep(whole);
    }
    localStorage.removeItem(key);
  }
}

/** @param {import('./conversation.js').Turn | undefined} turn */
const lengthOf = (turn) => turn ? turn.content.length + (turn.reasoning ?? '').length : 0;

/** @param {string} id */
export async function erase(id) {
  for (const one of waiting) if (one.id === id) waiting.delete(one);
  try {
    await transact('readwrite', (store) => { store.delete(id); });
    channel.postMessage({ gone: id });
  } catch { /* there is no storage */ }
}

// -- other tabs -------------------------------------------------------------------------------------------------------

/**
 * Turns that another tab writes, and until when to believe it.
 * @type {Map<string, number>}
 */
const elsewhere = new Map();

/** @param {string} id */
export const isWrittenElsewhere = (id) => (elsewhere.get(id) ?? 0) > Date.now();

/** @param {Conversation} what */
function tellOthers(what) {
  channel.postMessage({ kept: what.id, writes: Object.keys(what.turns).filter((id) => listener.written(id)) });
}

/** @param {{ kept?: string, gone?: string, writes?: string[] }} news */
async function hear(news) {
  if (news.gone) return listener.gone(news.gone);
  const { kept } = news;
  if (!kept) return;
  const stored = await transact('readonly', (store, result) => {
    const asked = store.get(kept);
    asked.onsuccess = () => result(asked.result);
  }).catch(() => undefined);
  if (!stored) return;
  for (const id of Object.keys(stored.turns)) elsewhere.delete(id);
  for (const id of news.writes ?? []) elsewhere.set(id, Date.now() + writtenElsewhere);
  const own = listener.known(kept);
  if (own) absorb(own, /** @type {Conversation} */ (stored), listener.written);
  listener.found(own ?? /** @type {Conversation} */ (stored));
  if (news.writes?.length) setTimeout(() => { if (own) listener.found(own); }, writtenElsewhere + 50);
}

// -- settings ---------------------------------------------------------------------------------------------------------

/**
 * @template T
 * @param {string} name
 * @param {T} initial
 * @returns {T}
 */
export function recall(name, initial) {
  try {
    const text = localStorage.getItem(`troupe.${name}`);
    return text === null ? initial : JSON.parse(text);
  } catch {
    return initial;
  }
}

/** @param {string} name @param {any} value */
export function remember(name, value) {
  try {
    localStorage.setItem(`troupe.${name}`, JSON.stringify(value));
  } catch {
    listener?.trouble('settings', 'Settings are not saved: the browser’s storage is full, or off.');
  }
}
