// The models that the server serves, and what holds for requests that do not say it.
import { call } from './link.js';

/**
 * `context` in tokens; of a model that is not loaded, what is not known yet is taken for granted. `sampling`: how it is sampled where a request does not say it, `source`: who says so, `named`: whether
 * the model itself does.
 * @typedef {{ id: string, context: number, sampling: Record<string, number>, source: string, named: boolean, generates: boolean,
 *   chats: boolean }} Model
 */

const mostTokens = 4096; // of an answer, unless a setting says otherwise: none goes on for ever

/** @type {Model[]} */
let all = [];

export const models = () => all;

export async function loadModels() {
  const told = (await (await call('/v1/models')).json()).data;
  const isLoaded = (/** @type {any} */ one) => !one.status || one.status.value === 'loaded'; // to ask others would load them
  const length = told[0] && isLoaded(told[0]) ? (await (await call('/tokenizer_info')).json()).model_max_length : undefined;
  const tells = told.some((/** @type {any} */ one) => one.sampling); // of models that generate
  all = await Promise.all(told.map(async (/** @type {any} */ one) => {
    const { source, named_by_model, ...sampling } = one.sampling ?? {};
    const generates = !tells || one.sampling !== undefined || !isLoaded(one);
    const chats = generates && !isLoaded(one) || generates && await call('/tokenize', { model: one.id, messages: [{ role: 'user', content: 'x' }] }).then(() => true, () => false);
    return { id: one.id, context: one.max_model_len ?? length ?? mostTokens, sampling, source: source ?? '', named: named_by_model ?? true,
      generates, chats };
  }));
}

/**
 * The one with this name; else the one that answers where none is named.
 * @param {string} [id]
 * @returns {Model | undefined}
 */
export function modelOf(id) {
  return all.find((one) => one.id === id && one.generates) ?? all.find((one) => one.generates) ?? all[0];
}

/**
 * The most tokens of an answer that no setting limits.
 * @param {string} id
 */
export function limitOf(id) {
  return Math.min(mostTokens, modelOf(id)?.context ?? mostTokens);
}

/**
 * How answers are sampled where no setting says it, and whence that is.
 * @param {string} id
 */
export function samplingOf(id) {
  const { sampling, source } = modelOf(id) ?? { sampling: {}, source: '' };
  const values = Object.entries(sampling).map(([name, value]) => `${name} ${value}`);
  return values.length ? `Unless set below: ${values.join(', ')} (${source}).` : '';
}
