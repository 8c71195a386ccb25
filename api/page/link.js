// The connection to the server: its HTTP endpoints, and the WebSocket that all requests share. Holds the API key.

/** @typedef {{ type: string, id: string, [key: string]: any }} Frame */

let key = sessionStorage.getItem('troupe.key') || '';
/**
 * Called when the server wants a key; resolves with one.
 * @type {(wrong: boolean) => Promise<string>}
 */
let askForKey = async () => '';

/** @param {(wrong: boolean) => Promise<string>} ask */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** @type {Promise<void> | null} */
let asking = null;

/** Asks once, however many requests were refused. */
async function newKey() {
  asking ??= (async () => {
    key = await askForKey(key !== '');
    sessionStorage.setItem('troupe.key', key);
  })().finally(() => { asking = null; });
  await asking;
}

/** In place of "Failed to fetch", which browsers say in words of their own. */
class Unreachable extends Error {
  constructor() {
    super(`The server at ${location.host} cannot be reached. It may have been stopped, or the network is down.`);
  }
}

const mostTries = 6;
/**
 * @param {number} ms
 * @returns {Promise<void>}
 */
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

/**
 * A request with the key; asks for one where the server wants it, and again later where it is busy. Throws a sentence, the
 * server's own where there is one.
 * @param {string} path
 * @param {any} [body] of a POST
 * @returns {Promise<Response>}
 */
export async function call(path, body) {
  for (let tries = 1; ; ++tries) {
    /** @type {Record<string, string>} */
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const answer = await fetch(path, body === undefined
      ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) }).catch(() => { throw new Unreachable(); });
    if (answer.status === 401) {
      await newKey();
      if (!key) throw new Error('The server wants an API key.');
      continue;
    }
    if (answer.status === 429 && tries < mostTries) {
      await pause(1000 * Math.min(60, Number(answer.headers.get('Retry-After')) || 1));
      continue;
    }
    if (!answer.ok) throw new Error(await sentence(answer));
    return answer;
  }
}

/** @param {Response} answer */
async function sentence(answer) {
  try {
    const body = await answer.json();
    return body.error?.message || body.detail || body.error || `The server answered ${answer.status}.`;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

/** @param {string} text */
function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** @type {Promise<WebSocket> | null} */
let opening = null;
/** @type {Map<string, (frame: Frame) => void>} */ // by id
const listeners = new Map();
let lastId = 0;

function connect() {
  opening ??= (async () => {
    await call('/v1/models'); // a browser does not say why a WebSocket was refused; this does
    const url = new URL('/v1/ws', location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(url, key ? ['troupe', `troupe.key.${base64url(key)}`] : ['troupe']);
    await new Promise((open, fail) => {
      socket.onopen = open;
      socket.onerror = () => fail(new Unreachable());
    });
    socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      listeners.get(frame.id)?.(frame);
    };
    socket.onclose = () => {
      opening = null;
      const lost = [...listeners.values()];
      listeners.clear();
      for (const listener of lost)
        listener({ type: 'error', id: '', error: { message: 'The connection to the server was lost.', lost: true } });
    };
    return socket;
  })();
  opening.catch(() => { opening = null; });
  return opening;
}

/**
 * Sends a request and hears its frames, to `done` or `error`.
 * @param {Record<string, any>} fields with its `type`
 * @param {(frame: Frame) => void} hear
 * @returns {{ stop: () => void, send: (type: string, more?: Record<string, any>) => void }}
 */
export function request(fields, hear) {
  const id = `page-${++lastId}`;
  let stopped = false;
  /** @param {string} type @param {Record<string, any>} more */
  const send = (type, more = {}) => {
    if (listeners.has(id)) opening?.then((socket) => socket.send(JSON.stringify({ ...more, type, id })), () => {});
  };
  connect().then((socket) => {
    if (stopped) return hear({ type: 'done', id, choices: [{ index: 0, finish_reason: 'cancelled' }] });
    listeners.set(id, (frame) => {
      if (frame.type === 'done' || frame.type === 'error') listeners.delete(id);
      hear(frame);
    });
    socket.send(JSON.stringify({ ...fields, id }));
  }, (why) => hear({ type: 'error', id, error: { message: why.message, lost: true } }));
  return {
    stop: () => { stopped = true; send('cancel'); },
    send,
  };
}
