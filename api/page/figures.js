// Figures of the last hour: what the server kept of its metrics before the page was opened, and since then the metrics
// themselves, read every five seconds.
import { h } from './dom.js';
import { call } from './link.js';
import { exact, lineChart, short } from './charts.js';

const every = 5000, span = 3600; // ms; seconds
/** @typedef {{ at: number, values: Map<string, number> }} Sample */
/** @type {Sample[]} */
const samples = [];
let shown = false, wrong = '', askedForPast = false;

const charts = {
  tokens: h('canvas', { role: 'img', 'aria-label': 'Tokens per second' }),
  first: h('canvas', { role: 'img', 'aria-label': 'Time to the first token' }),
  between: h('canvas', { role: 'img', 'aria-label': 'Time between tokens' }),
  pool: h('canvas', { role: 'img', 'aria-label': 'Use of the KV cache' }),
  load: h('canvas', { role: 'img', 'aria-label': 'Sequences' }),
  queue: h('canvas', { role: 'img', 'aria-label': 'Time in the queue' }),
};
const numbers = h('div', { class: 'numbers' });
const message = h('p', { class: 'dim' });
const percentiles = /** @type {const} */ ([[0.5, 'c-prefill', 'median'], [0.9, 'c-decode', '90th percentile'], [0.99, 'c-lost', '99th']]);

/** What is shown, for tests. */
export const state = () => ({ samples, rates: ratesOf('troupe_generated_tokens_total') });

/** @param {HTMLElement} view @param {boolean} visible */
export function showFigures(view, visible) {
  if (!view.firstChild) build(view);
  shown = visible;
  if (visible) read(true);
}

/** @param {HTMLElement} view */
function build(view) {
  /** @param {string} title @param {HTMLCanvasElement} chart @param {readonly (readonly [string, string])[]} lines */
  const card = (title, chart, lines) => h('section', { class: 'card half' }, h('h2', {}, title), chart,
    h('div', { class: 'legend' }, ...lines.map(([shade, text]) => {
      const dot = h('i');
      dot.style.background = `var(--${shade})`;
      return h('span', {}, dot, text);
    })));
  const three = percentiles.map(([, shade, text]) => /** @type {const} */ ([shade, text]));
  view.append(h('div', { class: 'board' }, numbers,
    card('Throughput', charts.tokens, [['c-decode', 'generated tokens'], ['c-prefill', 'prompt tokens']]),
    card('KV cache', charts.pool, [['c-used', 'in use'], ['c-cached', 'cached beside that']]),
    card('Time to the first token', charts.first, three),
    card('Time between tokens', charts.between, three),
    card('Time in the queue', charts.queue, three),
    card('Sequences', charts.load, [['c-decode', 'running'], ['c-lost', 'waiting'], ['c-forced', 'paused']]),
    h('div', { class: 'tools' }, message)));
  setInterval(() => { if (!document.hidden) read(false); }, every);
  addEventListener('resize', draw);
  addEventListener('themechange', () => setTimeout(draw));
}

/**
 * Reads the metrics. Only where the view is shown may this ask for a key.
 * @param {boolean} asks
 */
async function read(asks) {
  try {
    const text = await (await (asks || samples.length ? call('/metrics') : fetch('/metrics'))).text();
    /** @type {Map<string, number>} */
    const values = new Map();
    for (const line of text.split('\n')) {
      const space = line.lastIndexOf(' ');
      if (line[0] !== '#' && space > 0) add(values, line.slice(0, space), Number(line.slice(space + 1)));
    }
    if (!values.has('troupe_ready')) return;
    if (!askedForPast) {
      askedForPast = true;
      samples.push(...await past());
    }
    samples.push({ at: Date.now() / 1000, values });
    while (samples[0].at < Date.now() / 1000 - span) samples.shift();
    wrong = '';
  } catch (why) {
    wrong = why instanceof Error ? why.message : String(why);
  }
  if (shown) draw();
}

/**
 * What the server kept, by this machine's clock; nothing if it keeps nothing.
 * @returns {Promise<Sample[]>}
 */
async function past() {
  try {
    const kept = await (await call('/debug/figures')).json();
    return kept.samples.map((/** @type {(number | null)[]} */ [at, ...values]) => ({
      at: Date.now() / 1000 - (kept.now - Number(at)),
      values: new Map(values.flatMap((value, i) => value === null ? [] : [[kept.names[i], value]])),
    }));
  } catch {
    return [];
  }
}

/**
 * Sums over models and replicas.
 * @param {Map<string, number>} to
 * @param {string} name
 * @param {number} value
 */
function add(to, name, value) {
  const plain = name.replace(/(model|replica)="([^"\\]|\\.)*",?/g, '').replace(/,?\}$/, '}').replace('{}', '');
  to.set(plain, (to.get(plain) || 0) + value);
}

/** @param {Sample} of @param {string} name */
const valueOf = (of, name) => of.values.get(name) || 0;

/**
 * A counter's rates between samples.
 * @param {string} name
 */
function ratesOf(name) {
  return samples.map((one, i) => i === 0 ? null
    : Math.max(0, valueOf(one, name) - valueOf(samples[i - 1], name)) / (one.at - samples[i - 1].at));
}

/**
 * A histogram's percentile of what happened in the last minute before each sample; null where nothing did.
 * @param {string} name
 * @param {number} part
 */
function percentileOf(name, part) {
  const prefix = `${name}_bucket{le="`;
  const edges = [...(samples[samples.length - 1]?.values.keys() || [])].filter((key) => key.startsWith(prefix))
    .map((key) => ({ key, edge: key.slice(prefix.length, -2) })).map(({ key, edge }) => (
      { key, edge: edge === '+Inf' ? Infinity : Number(edge) })).sort((a, b) => a.edge - b.edge);
  let back = 0;
  return samples.map((one) => {
    while (one.at - samples[back].at > 61) ++back;
    const from = samples[back];
    const counts = edges.map(({ key }) => valueOf(one, key) - valueOf(from, key));
    const all = counts[counts.length - 1] || 0;
    if (all <= 0) return null;
    const wanted = part * all, at = counts.findIndex((count) => count >= wanted);
    const low = at === 0 ? 0 : edges[at - 1].edge, high = edges[at].edge, below = at === 0 ? 0 : counts[at - 1];
    return Number.isFinite(high) ? 1000 * (low + (high - low) * (wanted - below) / (counts[at] - below)) : 1000 * low;
  });
}

function draw() {
  if (!shown) return;
  message.textContent = wrong || (samples.length < 2 ? 'The first figures come in five seconds.'
    : 'The last hour, as far as the server has run: every 10 s before this page was opened, every 5 s since. Percentiles are of the last minute.');
  if (!samples.length) return;
  const now = samples[samples.length - 1];
  const times = samples.map((one) => one.at - now.at);
  const shownSpan = Math.min(span, Math.max(120, 60 * Math.ceil((now.at - samples[0].at) / 60)));
  /** @param {HTMLCanvasElement} canvas @param {[string, (number | null)[]][]} lines @param {string} unit @param {number} [most] */
  const chart = (canvas, lines, unit, most) => {
    lineChart(canvas, { times, span: shownSpan, unit, most, lines: lines.map(([shade, values]) => ({ colour: shade, values })) });
    const last = lines.map(([, values]) => values[values.length - 1]).map((value) => value === null ? 'none' : short(value));
    canvas.setAttribute('aria-label', `${canvas.parentElement?.querySelector('h2')?.textContent}, now: ${last.join(', ')} ${unit}`);
  };
  const generated = ratesOf('troupe_generated_tokens_total');
  chart(charts.tokens, [['c-prefill', ratesOf('troupe_prompt_tokens_total')], ['c-decode', generated]], 'per s');
  /** @param {string} name */
  const shareOf = (name) => samples.map((one) => 100 * valueOf(one, name) / (valueOf(one, 'troupe_kv_blocks') || 1));
  const used = shareOf('troupe_kv_blocks_in_use');
  chart(charts.pool, [['c-cached', shareOf('troupe_kv_blocks_cached').map((share, i) => used[i] + share)],
    ['c-used', used]], '%', 100);
  for (const [canvas, name] of /** @type {const} */ ([[charts.first, 'troupe_time_to_first_token_seconds'],
    [charts.between, 'troupe_inter_token_seconds'], [charts.queue, 'troupe_queue_seconds']]))
    chart(canvas, percentiles.map(([part, shade]) => [shade, percentileOf(name, part)]), 'ms');
  chart(charts.load, [['c-decode', samples.map((one) => valueOf(one, 'troupe_sequences_running'))],
    ['c-lost', samples.map((one) => valueOf(one, 'troupe_sequences_waiting'))],
    ['c-forced', samples.map((one) => valueOf(one, 'troupe_sequences_paused'))]], '');
  const found = valueOf(now, 'troupe_prompt_tokens_cached_total'), asked = valueOf(now, 'troupe_prefix_cache_queries_total');
  const items = [['generated tokens', exact(valueOf(now, 'troupe_generated_tokens_total'))],
    ['prompt tokens', exact(valueOf(now, 'troupe_prompt_tokens_total'))], ['steps', exact(valueOf(now, 'troupe_steps_total'))],
    ['found in the prefix cache', asked ? `${(100 * found / asked).toFixed(0)} %` : '–'],
    ['preemptions', exact(valueOf(now, 'troupe_preemptions_total'))], ['restarts', exact(valueOf(now, 'troupe_restarts_total'))]];
  numbers.replaceChildren(...items.map(([name, value]) => h('div', { class: 'number' }, h('b', {}, value), h('span', {}, name))));
}
