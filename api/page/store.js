// What the page keeps in the browser: conversations in IndexedDB, settings in localStorage.

/** @typedef {import('./conversation.js').Conversation} Conversation */

/** @type {Promise<IDBDatabase> | null} */
let opened = null;

function database() {
  opened ??= new Promise((done, fail) => {
    const asked = indexedDB.open('troupe', 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore('conversations', { keyPath: 'id' });
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => fail(asked.error);
  });
  return opened;
}

/**
 * @template T
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest<T>} work
 * @returns {Promise<T>}
 */
async function within(mode, work) {
  const db = await database();
  return new Promise((done, fail) => {
    const asked = work(db.transaction('conversations', mode).objectStore('conversations'));
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => fail(asked.error);
  });
}

/** Newest first. @returns {Promise<Conversation[]>} */
export async function loadAll() {
  try {
    const all = await within('readonly', (store) => store.getAll());
    return all.sort((a, b) => b.changed - a.changed);
  } catch {
    return []; // a private window, or storage is off: conversations last as long as the page
  }
}

/** @param {Conversation} what */
export async function put(what) {
  try {
    await within('readwrite', (store) => store.put(what));
  } catch { /* as above */ }
}

/** @param {string} id */
export async function erase(id) {
  try {
    await within('readwrite', (store) => store.delete(id));
  } catch { /* as above */ }
}

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
  } catch { /* full, or off */ }
}
