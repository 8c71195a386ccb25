// The models of a server that has several: which are loaded, and what memory they take. Shown beside the engine.
import { h } from './dom.js';
import { call } from './link.js';

/** @param {number} bytes */
function sizeOf(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; ++at) bytes /= 1024;
  return `${bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}

/** @param {any} status */
function stateOf(status) {
  if (status.failed) return `failed: ${status.error}`;
  if (status.progress !== undefined) return `loading, ${Math.round(100 * status.progress)} %`;
  return status.value;
}

/**
 * Draws them. Returns the names of those that are loaded, nothing of a server with one model.
 * @param {HTMLElement} box
 * @returns {Promise<string>}
 */
export async function showMemory(box) {
  const all = (await (await call('/v1/models')).json()).data.filter((/** @type {any} */ one) => one.status);
  const bytesOf = (/** @type {any} */ one) => (one.status.weight_bytes ?? 0) + (one.status.kv_cache_bytes ?? 0);
  const whole = all.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + bytesOf(one), 0);
  box.dataset.several = String(all.length > 0);
  box.replaceChildren(...all.map((/** @type {any} */ one) => {
    const bytes = bytesOf(one);
    const bar = h('meter', { min: '0', max: String(Math.max(1, whole)), 'aria-label': `Memory of ${one.id}` });
    bar.value = bytes;
    const text = bytes ? `${sizeOf(one.status.weight_bytes)} weights, ${sizeOf(one.status.kv_cache_bytes)} KV cache` : stateOf(one.status);
    return h('div', { class: 'memory-model' }, h('span', {}, one.id), bar, h('span', { class: 'dim' }, text));
  }));
  return all.filter((/** @type {any} */ one) => one.status.value === 'loaded').map((/** @type {any} */ one) => one.id).join('\n');
}
