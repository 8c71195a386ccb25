// The engine, live: its steps, the blocks of its KV cache, its sequences and its actors, from one frame of a watch five
// times a second. It watches only while it is shown.
import { button, h, save } from './dom.js';
import { request } from './link.js';
import { models } from './models.js';
import { begin, colour, exact, roundUp, shareBar, short } from './charts.js';
import { causes, laneKey, ledger, ledgerOf, mostSteps, parts, rates, rowsOf, sequencesOf, traceOf } from './steps.js';

/** @typedef {import('./steps.js').Step} Step */
/** @typedef {import('./steps.js').WatchFrame} WatchFrame */

const barWidth = 6, laneHeight = 15, mostLanes = 14, flashTime = 700; // pixels; ms

/** @type {Step[]} */
let steps = [];
/** @type {WatchFrame | null} */
let latest = null;
/** @type {WatchFrame | null} */
let before = null;
let frozen = false, selected = -1, offset = 0; // the newest step shown is so many from the end
/**
 * By block.
 * @type {Map<number, number>}
 */
const flashes = new Map();
/** @type {{ stop: () => void } | null} */
let watching = null;
let shown = false, drawn = false;

const canvases = {
  steps: h('canvas', { tabindex: '0', role: 'img', 'aria-label': 'Steps' }),
  lanes: h('canvas', { role: 'img', 'aria-label': 'Sequences' }),
  blocks: h('canvas', { role: 'img', 'aria-label': 'KV blocks' }),
};
const numbers = h('div', { class: 'numbers' });
const detail = h('p', { class: 'detail', role: 'status' });
const blockDetail = h('p', { class: 'detail' });
const actors = h('tbody'), times = h('tbody');
const slider = h('input', { type: 'range', min: '0', max: '0', value: '0', 'aria-label': 'Step', disabled: true });
const freezeButton = button('Freeze', () => freeze(!frozen), { class: 'main', id: 'freeze' });
const note = h('span', { class: 'dim' });
let watched = new URLSearchParams(location.search).get('model') ?? ''; // '': the first model that is loaded
const chooser = h('select', { 'aria-label': 'Model whose engine is shown', id: 'engine-model', hidden: true, onchange: () => {
  watched = chooser.value;
  watchAnew();
} });

/** What is shown, for tests. */
export const state = () => ({ steps, latest });

/** @param {HTMLElement} view @param {boolean} visible */
export function showEngine(view, visible) {
  if (!view.firstChild && visible) build(view);
  if (visible) offerModels();
  shown = visible && !document.hidden;
  if (shown && !watching) watch();
  if (!shown && watching) {
    watching.stop();
    watching = null;
  }
}

/** Of several models, those whose engine may be shown. */
export function offerModels() {
  const names = models().map((one) => one.id);
  const all = names.length && watched && !names.includes(watched) ? [...names, watched] : names;
  chooser.hidden = all.length < 2;
  if ([...chooser.options].slice(1).map((one) => one.value).join('\n') === all.join('\n')) return;
  chooser.replaceChildren(h('option', { value: '' }, 'the first that is loaded'), ...all.map((name) => h('option', { value: name }, name)));
  chooser.value = watched;
}

/** Another engine: nothing that was shown is its own. */
function watchAnew() {
  watching?.stop();
  watching = null;
  if (frozen) freeze(false);
  steps = [];
  latest = before = null;
  flashes.clear();
  ledgerDrawn = 0;
  note.textContent = '';
  for (const box of [numbers, actors, times]) box.replaceChildren();
  for (const one of Object.values(canvases)) begin(one, 20);
  detail.textContent = watched ? `${watched} has not been seen yet: is it loaded?` : '';
  if (shown) watch();
}

document.addEventListener('visibilitychange', () => {
  const view = document.getElementById('view-engine');
  if (view) showEngine(view, !view.hidden);
});
addEventListener('resize', draw);
addEventListener('themechange', () => setTimeout(draw));

/** @param {HTMLElement} view */
function build(view) {
  const legend = (/** @type {readonly (readonly [string, string])[]} */ entries) => h('div', { class: 'legend' },
    ...entries.map(([name, text]) => {
      const dot = h('i');
      dot.style.background = `var(--${name})`;
      return h('span', {}, dot, text);
    }));
  slider.addEventListener('input', () => { offset = steps.length - 1 - Number(slider.value); selected = Number(slider.value); draw(); });
  canvases.steps.addEventListener('click', (event) => choose(placeOf(event.offsetX)));
  canvases.lanes.addEventListener('click', (event) => choose(placeOf(event.offsetX - laneLeft)));
  canvases.blocks.addEventListener('mousemove', tellBlock);
  canvases.steps.addEventListener('keydown', (event) => {
    const by = event.key === 'ArrowLeft' ? -1 : event.key === 'ArrowRight' ? 1 : 0;
    if (!by) return;
    event.preventDefault();
    move(by);
  });
  view.append(h('div', { class: 'board' },
    h('div', { class: 'tools' }, chooser, freezeButton,
      button('‹', () => move(-1), { 'aria-label': 'The step before' }), slider,
      button('›', () => move(1), { 'aria-label': 'The step after' }),
      button('Save as a trace', () => save('troupe-trace.json', traceOf(steps)), { title: 'For ui.perfetto.dev' }), note),
    numbers,
    h('section', { class: 'card' }, h('h2', {}, 'Steps', h('span', { class: 'dim' }, 'rows of each step, and below the time that it took')),
      canvases.steps, legend(parts.map(([, name, text]) => [name, text])), detail),
    h('section', { class: 'card' }, h('h2', {}, 'Sequences', h('span', { class: 'dim' }, 'what each did in the steps above')),
      canvases.lanes, legend(ledger.map(([, shade, text]) => [shade, text])),
      h('details', { id: 'ledger', ontoggle: () => { ledgerDrawn = 0; draw(); } }, h('summary', {}, 'Where their time went'),
        h('div', { class: 'table' }, h('table', {}, h('caption', { class: 'dim' }, 'In ms, of the steps that are kept here'),
          h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'request'), h('th', { scope: 'col', class: 'share' }, 'shares'), ...ledger.map(([, , text]) =>
            h('th', { class: 'num', scope: 'col' }, text)), h('th', { class: 'num', scope: 'col' }, 'in all'))), times)))),
    h('section', { class: 'card half' }, h('h2', {}, 'KV blocks'), canvases.blocks,
      legend([['c-free', 'free'], ['c-cached', 'cached'], ['c-disk', 'cached, and on disk'], ['c-used', 'in use'],
        ['c-shared', 'shared'], ['c-forced', 'lent, or just copied']]), blockDetail),
    h('section', { class: 'card half' }, h('h2', {}, 'Actors'), h('div', { class: 'table' }, h('table', {}, h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, 'kind'), ...['alive', 'spawned', 'messages/s', 'queued', 'waiting'].map((text) =>
        h('th', { class: 'num', scope: 'col' }, text)))), actors)))));
}

function watch() {
  const model = watched;
  watching = request({ type: 'watch', interval_ms: 200, ...(model && { model }) }, (frame) => {
    if (model !== watched) return; // the last frames of the one before
    if (frame.type === 'watch') take(/** @type {any} */ (frame));
    if (frame.type === 'error') {
      note.textContent = frame.error.message;
      watching = null;
      setTimeout(() => { if (shown && !watching) watch(); }, 2000);
    }
  });
}

/** @param {WatchFrame} frame */
function take(frame) {
  if (!frozen) {
    before = latest;
    latest = frame;
    if (before && frame.steps[0] && steps.length && frame.steps[0].step < steps[steps.length - 1].step && frame.replicas.length === 1)
      steps = []; // the scheduler was started again
    steps.push(...frame.steps);
    if (steps.length > mostSteps) steps.splice(0, steps.length - mostSteps);
    const now = performance.now();
    for (const step of frame.steps) for (const block of step.copies || []) flashes.set(block, now);
    note.textContent = frame.lost ? `${frame.lost} steps were lost: this page is too slow for them` : '';
  }
  if (!drawn) requestAnimationFrame(() => { drawn = false; draw(); });
  drawn = true;
}

/** @param {boolean} on */
function freeze(on) {
  frozen = on;
  freezeButton.textContent = on ? 'Go on' : 'Freeze';
  slider.disabled = !on;
  slider.max = String(Math.max(0, steps.length - 1));
  selected = on ? steps.length - 1 : -1;
  slider.value = String(Math.max(0, selected));
  offset = 0;
  draw();
}

/** @param {number} by */
function move(by) {
  if (!frozen) freeze(true);
  choose(selected + by);
}

/** @param {number} place */
function choose(place) {
  if (!frozen) freeze(true);
  selected = Math.max(0, Math.min(steps.length - 1, place));
  const fits = Math.floor((canvases.steps.clientWidth - laneLeft) / barWidth);
  const newest = steps.length - 1 - offset;
  if (selected > newest || selected <= newest - fits) offset = Math.max(0, steps.length - 1 - selected - Math.floor(fits / 2));
  slider.value = String(selected);
  draw();
}

/**
 * The step at a place of the canvas.
 * @param {number} x
 */
function placeOf(x) {
  return firstShown() + Math.floor((x - laneLeft) / barWidth);
}

const laneLeft = 52;
const fitting = () => Math.max(1, Math.floor((canvases.steps.clientWidth - laneLeft) / barWidth));
const firstShown = () => Math.max(0, steps.length - offset - fitting());

function draw() {
  if (!latest || !shown) return;
  const first = firstShown(), visible = steps.slice(first, first + fitting());
  drawNumbers();
  drawSteps(visible, first);
  drawLanes(visible, first);
  drawLedger(visible);
  drawBlocks();
  drawActors();
  const step = selected >= 0 ? steps[selected] : steps[steps.length - 1];
  detail.textContent = step ? describe(step) : 'No step has run since this page watches.';
}

/** @param {Step} s */
function describe(s) {
  const facts = [`step ${s.step}${s.replica ? ` of replica ${s.replica}` : ''}: ${s.ms.toFixed(2)} ms`];
  for (const [name, , text] of parts) if (s[name]) facts.push(`${s[name]} ${text}`);
  if (s.granted) facts.push(`blocks granted: ${s.granted}`);
  if (s.copied) facts.push(`${s.copied} copied on write`);
  if (s.evicted) facts.push(`${s.evicted} evicted`);
  if (s.swapped_out) facts.push(`${s.swapped_out} parked`);
  if (s.swapped_in) facts.push(`${s.swapped_in} brought back`);
  if (s.without_blocks) facts.push(`${s.without_blocks} sequences without blocks`);
  if (s.preempted) facts.push(`${s.preempted} preempted`);
  if (s.without_masks) facts.push(`${s.without_masks} without masks`);
  if (s.at_judge) facts.push(`${s.at_judge} at the reward model`);
  facts.push(`${s.running || 0} running, ${s.waiting || 0} waiting, ${s.paused || 0} paused`);
  if (s.remark) facts.push(s.remark);
  const gaps = (s.lanes || []).filter((lane) => causes.has(lane[2])).slice(0, 8);
  return facts.join(' · ') + gaps.map((lane) => `\nrequest ${lane[0]} ${causes.get(lane[2])}`).join('');
}

function drawNumbers() {
  const frame = /** @type {WatchFrame} */ (latest);
  const last = steps[steps.length - 1];
  const speed = rates(steps, frame.now_ms, Math.min(2000, steps.length ? Math.max(200, frame.now_ms - steps[0].end_ms) : 2000));
  const maps = frame.replicas.map((replica) => replica.map).join('');
  const used = [...maps].filter((cell) => cell >= '1' && cell <= '9').length;
  const all = frame.replicas.reduce((sum, replica) => sum + replica.blocks, 0);
  const idle = !last || frame.now_ms - last.end_ms > 1000;
  const items = [
    ['tokens/s', short(speed.tokens)], ['rows/s', short(speed.rows)], ['steps/s', short(speed.steps)],
    ['running', String(idle ? 0 : last.running || 0)], ['waiting', String(idle ? 0 : last.waiting || 0)],
    ['paused', String(last?.paused || 0)], ['blocks in use', `${exact(maps.length ? used * all / maps.length : 0)} of ${exact(all)}`],
    ['restarts', String(frame.replicas.reduce((sum, replica) => sum + replica.restarts, 0))]];
  const roles = frame.replicas.flatMap((replica) => replica.role || []);
  if (roles.length) items.push(['roles', roles.join(', ')]);
  numbers.replaceChildren(...items.map(([name, value]) => h('div', { class: 'number' }, h('b', {}, value), h('span', {}, name))));
}

/** @param {Step[]} visible @param {number} first */
function drawSteps(visible, first) {
  const top = 120, bottom = 46, gap = 8;
  const { pen, width } = begin(canvases.steps, top + gap + bottom);
  const high = roundUp(Math.max(1, ...visible.map((s) => rowsOf(s) + (s.forced || 0))));
  const slow = roundUp(Math.max(0.01, ...visible.map((s) => s.ms)));
  axis(pen, width, 0, top, `${short(high)} rows`);
  axis(pen, width, top + gap, bottom, `${short(slow)} ms`);
  visible.forEach((s, i) => {
    const x = laneLeft + i * barWidth;
    let y = top;
    for (const [name, shade] of parts) {
      const tall = (s[name] || 0) / high * (top - 4);
      if (!tall) continue;
      pen.fillStyle = colour(shade);
      pen.fillRect(x, y - tall, barWidth - 1, tall);
      y -= tall;
    }
    const tall = Math.max(1, s.ms / slow * (bottom - 4));
    pen.fillStyle = colour('dim');
    pen.fillRect(x, top + gap + bottom - tall, barWidth - 1, tall);
    if (first + i === selected) mark(pen, x, 0, top + gap + bottom);
  });
  canvases.steps.setAttribute('aria-label', `Steps: ${visible.length} shown; arrow keys freeze and move`);
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} tall */
function mark(pen, x, y, tall) {
  pen.strokeStyle = colour('text');
  pen.lineWidth = 1;
  pen.strokeRect(x - 0.5, y + 0.5, barWidth, tall - 1);
}

/** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} y @param {number} tall @param {string} text */
function axis(pen, width, y, tall, text) {
  pen.fillStyle = colour('line');
  pen.fillRect(laneLeft, y + tall, width - laneLeft, 1);
  pen.fillRect(laneLeft, y + 3, width - laneLeft, 1);
  pen.fillStyle = colour('dim');
  pen.textAlign = 'right';
  pen.textBaseline = 'top';
  pen.fillText(text, laneLeft - 5, y, laneLeft - 6);
}

/** @param {Step[]} visible @param {number} first */
function drawLanes(visible, first) {
  const found = sequencesOf(visible, mostLanes);
  const tall = Math.max(1, found.length) * laneHeight + 4;
  const { pen, width } = begin(canvases.lanes, tall);
  const rows = new Map(found.map((one, i) => [one.key, i]));
  /** @type {Record<string, string>} */
  const shades = Object.fromEntries(ledger);
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  found.forEach((one, i) => {
    pen.fillStyle = colour('soft');
    pen.fillRect(laneLeft, i * laneHeight + 1, width - laneLeft, laneHeight - 3);
    pen.fillStyle = colour('dim');
    pen.fillText(one.name, laneLeft - 5, i * laneHeight + laneHeight / 2, laneLeft - 6);
  });
  if (!found.length) {
    pen.fillStyle = colour('dim');
    pen.textAlign = 'left';
    pen.fillText('none', laneLeft, laneHeight / 2 + 2);
  }
  visible.forEach((step, i) => {
    for (const lane of step.lanes || []) {
      const row = rows.get(laneKey(step, lane));
      if (row === undefined) continue;
      pen.fillStyle = colour(shades[lane[2]]);
      const low = causes.has(lane[2]) ? 4 : 0; // a gap is flatter
      pen.fillRect(laneLeft + i * barWidth, row * laneHeight + 1 + low, barWidth - 1, laneHeight - 3 - 2 * low);
    }
    if (first + i === selected) mark(pen, laneLeft + i * barWidth, 0, tall - 3);
  });
  canvases.lanes.setAttribute('aria-label', `Sequences: ${found.length} in the steps shown`);
}

let ledgerDrawn = 0;

/** @param {Step[]} visible */
function drawLedger(visible) {
  const now = performance.now();
  const open = times.closest('details')?.open;
  if (!open || (!frozen && now - ledgerDrawn < 1000)) return; // over all steps that are kept
  ledgerDrawn = now;
  const all = ledgerOf(selected >= 0 ? steps.slice(0, selected + 1) : steps);
  times.replaceChildren(...sequencesOf(visible, mostLanes).filter((one) => all.has(one.key)).map((one) => {
    const own = /** @type {Map<string, number>} */ (all.get(one.key));
    const sum = [...own.values()].reduce((a, b) => a + b, 0);
    const cells = [...ledger.map(([name]) => own.get(name) || 0), sum];
    const bar = shareBar(ledger.filter(([name]) => own.get(name)).map(([name, shade, text]) => {
      const ms = own.get(name) || 0;
      return { shade, share: ms / sum, text: `${text} ${short(Math.round(10 * ms) / 10)} ms` };
    }));
    return h('tr', {}, h('th', { scope: 'row' }, one.name), h('td', {}, bar), ...cells.map((ms) => h('td', { class: 'num' }, ms ? short(Math.round(10 * ms) / 10) : '–')));
  }));
}

/** @type {Record<string, string>} */
const cellShades = { f: 'c-free', c: 'c-cached', d: 'c-disk', 1: 'c-used', l: 'c-forced' };
let grid = { across: 1, side: 8 };

function drawBlocks() {
  const frame = /** @type {WatchFrame} */ (latest);
  const maps = frame.replicas.map((replica) => replica.map);
  const count = maps.reduce((sum, map) => sum + map.length, 0);
  const space = canvases.blocks.clientWidth || 300;
  const side = [20, 16, 12, 10, 8, 6, 5, 4, 3, 2].find((s) => Math.ceil(count / Math.floor(space / s)) * s <= 240) || 2;
  const across = Math.max(1, Math.floor(space / side));
  grid = { across, side };
  const tall = maps.reduce((sum, map) => sum + Math.max(1, Math.ceil(map.length / across)) * side + 4, 0);
  const { pen } = begin(canvases.blocks, Math.max(20, tall));
  const now = performance.now(), gap = side > 3 ? 1 : 0;
  /**
   * By state.
   * @type {Map<string, number>}
   */
  const counts = new Map();
  let top = 0;
  for (const map of maps) {
    for (let i = 0; i < map.length; ++i) {
      const cell = map[i];
      counts.set(cell, (counts.get(cell) || 0) + 1);
      const flash = flashes.get(i);
      pen.fillStyle = colour(flash !== undefined && now - flash < flashTime ? 'c-flash' : cellShades[cell] || 'c-shared');
      pen.fillRect((i % across) * side, top + Math.floor(i / across) * side, side - gap, side - gap);
    }
    top += Math.max(1, Math.ceil(map.length / across)) * side + 4;
  }
  for (const [block, since] of flashes) if (now - since > flashTime) flashes.delete(block);
  const total = (/** @type {string} */ kinds) => [...counts].filter(([cell]) => kinds.includes(cell)).reduce((n, [, k]) => n + k, 0);
  const text = `${total('f')} free, ${total('cd')} cached, ${total('1')} in use by one, ${total('23456789')} shared`;
  canvases.blocks.setAttribute('aria-label', `KV blocks: ${text}`);
  if (!blockDetail.dataset.block) blockDetail.textContent = text;
}

/** @param {MouseEvent} event */
function tellBlock(event) {
  const map = latest?.replicas[0]?.map || '';
  const place = Math.floor(event.offsetY / grid.side) * grid.across + Math.floor(event.offsetX / grid.side);
  const cell = map[place];
  const names = /** @type {Record<string, string>} */ ({ f: 'free', c: 'cached', d: 'cached, and on disk', 1: 'in use by one sequence', l: 'lent' });
  blockDetail.dataset.block = cell ? String(place) : '';
  if (cell) blockDetail.textContent = `block ${place}: ${names[cell] || `shared by ${cell}${cell === '9' ? ' or more' : ''} sequences`}`;
}

function drawActors() {
  const now = /** @type {WatchFrame} */ (latest), past = new Map((before?.actors || []).map((one) => [one.kind, one]));
  const seconds = before ? (now.now_ms - before.now_ms) / 1000 : 0;
  actors.replaceChildren(...now.actors.filter((one) => one.spawned).map((one) => {
    const rate = seconds > 0 ? (one.handled - (past.get(one.kind)?.handled ?? one.handled)) / seconds : 0;
    const cells = [String(one.alive), String(one.spawned), short(Math.round(rate)), String(one.queued),
      one.waiting_ms >= 0.05 ? `${short(one.waiting_ms)} ms` : '–'];
    return h('tr', {}, h('td', {}, one.kind), ...cells.map((text) => h('td', { class: 'num' }, text)));
  }));
}
