// The last steps of the engine, from the frames of a watch, and what is computed from them. Plain data.

/**
 * @typedef {[request: number, index: number, what: 'decode' | 'prefill' | 'blocks' | 'mask' | 'judge' | 'turn' | 'queue' | 'preempted' | 'paused', rows: number, position: number]} Lane
 * @typedef {{ step: number, replica: number, end_ms: number, ms: number, decode?: number, prefill?: number, kept?: number,
 *   lost?: number, forced?: number, granted?: number, copied?: number, evicted?: number, swapped_out?: number,
 *   swapped_in?: number, running?: number, waiting?: number, paused?: number, without_blocks?: number, preempted?: number,
 *   without_masks?: number, at_judge?: number, lanes?: Lane[], copies?: number[], remark?: string }} Step
 * @typedef {{ now_ms: number, lost: number, steps: Step[],
 *   replicas: { number: number, restarts: number, blocks: number, map: string, role?: string }[],
 *   actors: { kind: string, alive: number, spawned: number, handled: number, queued: number, waiting_ms: number }[] }} WatchFrame
 */

export const mostSteps = 2000;

/** What a step is made of, in the order in which it is stacked. */
export const parts = /** @type {const} */ ([
  ['decode', 'c-decode', 'decode rows'], ['prefill', 'c-prefill', 'prefill rows'], ['kept', 'c-kept', 'guesses kept'],
  ['lost', 'c-lost', 'guesses lost'], ['forced', 'c-forced', 'forced tokens']]);

/** Why a sequence has a gap. */
export const causes = new Map([['blocks', 'asked for KV blocks and got none'],
  ['mask', 'waits for its guide’s mask'], ['judge', 'waits for the reward model of its search'],
  ['turn', 'runs, but not in this step'], ['queue', 'is in the queue'], ['preempted', 'lost its place and waits for another'],
  ['paused', 'is paused, as its client reads too slowly']]);

/** What a sequence's time is made of, in the order of the table: name, colour, text. */
export const ledger = /** @type {const} */ ([['prefill', 'c-prefill', 'prefill'], ['decode', 'c-decode', 'decode'],
  ['queue', 'c-queue', 'queue'], ['turn', 'c-cached', 'others’ steps'], ['blocks', 'c-lost', 'no KV blocks'],
  ['preempted', 'c-kept', 'preempted'], ['mask', 'c-forced', 'mask is late'], ['judge', 'c-judge', 'reward model'],
  ['paused', 'c-paused', 'paused by its reader']]);

/** What a request's time is made of, in the order of its bar: name, colour, text. */
export const spentParts = /** @type {readonly (readonly [string, string, string])[]} */ ([...ledger,
  ['others_prefill', 'c-shared', 'others’ prompts'], ['restart', 'c-lost', 'restart of its replica'],
  ['transfer', 'c-disk', 'blocks on their way'], ['load', 'c-flash', 'its model is loaded'],
  ['parse', 'c-cached', 'read by the server'], ['write', 'c-cached', 'written by the server']]);

const spanNames = new Map([['blocks', 'waits for blocks'], ['judge', 'waits for its reward model'], ['turn', 'waits for its turn'],
  ['queue', 'in the queue'], ['paused', 'paused by its reader']]);

/**
 * Where the time of each sequence went, in milliseconds by cause. The parts are the times between the ends of steps, so they
 * sum to the time from the step before a sequence's first one to its last.
 * @param {Step[]} steps
 * @returns {Map<string, Map<string, number>>} by laneKey
 */
export function ledgerOf(steps) {
  /** @type {Map<string, Map<string, number>>} */
  const found = new Map();
  /** @type {Map<number, number>} */
  const ends = new Map(); // by replica
  for (const step of steps) {
    const past = ends.get(step.replica);
    const took = past === undefined ? step.ms : Math.max(0, step.end_ms - past);
    ends.set(step.replica, step.end_ms);
    for (const lane of step.lanes || []) {
      const key = laneKey(step, lane);
      const own = found.get(key) || new Map();
      found.set(key, own);
      own.set(lane[2], (own.get(lane[2]) || 0) + took);
    }
  }
  return found;
}

/**
 * @param {Step[]} steps within so many ms before `now`
 * @param {number} now
 * @param {number} span
 */
export function rates(steps, now, span) {
  let count = 0, rows = 0, tokens = 0, busy = 0;
  for (let i = steps.length - 1; i >= 0 && steps[i].end_ms > now - span; --i) {
    const s = steps[i];
    ++count;
    rows += rowsOf(s);
    tokens += (s.decode || 0) + (s.kept || 0) + (s.forced || 0);
    busy += s.ms;
  }
  return { steps: count / span * 1000, rows: rows / span * 1000, tokens: tokens / span * 1000, busy: busy / span };
}

/**
 * Rows that were computed; forced tokens are computed by later steps.
 * @param {Step} s
 */
export function rowsOf(s) {
  return (s.decode || 0) + (s.prefill || 0) + (s.kept || 0) + (s.lost || 0);
}

/**
 * The sequences of some steps, those that came last first.
 * @param {Step[]} steps
 * @param {number} most
 */
export function sequencesOf(steps, most) {
  /** @type {Map<string, { name: string, first: number }>} */
  const found = new Map();
  for (let i = steps.length - 1; i >= 0; --i)
    for (const lane of steps[i].lanes || []) {
      const key = laneKey(steps[i], lane);
      const known = found.get(key);
      if (known) known.first = i;
      else if (found.size < 4 * most) found.set(key, { name: `${lane[0]}${lane[1] ? `.${lane[1]}` : ''}`, first: i });
    }
  return [...found].map(([key, one]) => ({ key, ...one })).sort((a, b) => b.first - a.first).slice(0, most);
}

/**
 * @param {Step} step
 * @param {Lane} lane
 */
export function laneKey(step, lane) {
  return `${step.replica}/${lane[0]}.${lane[1]}`;
}

/**
 * As a trace that Perfetto opens: a process for each replica, a track of its steps and one for each sequence.
 * @param {Step[]} steps
 */
export function traceOf(steps) {
  /** @type {any[]} */
  const events = [];
  /** @type {Map<string, number>} */
  const tracks = new Map();
  /** @param {string} name @param {number} pid @param {number} tid @param {string} value */
  const label = (name, pid, tid, value) => events.push({ ph: 'M', name, pid, tid, args: { name: value } });
  /** @type {Set<number>} */
  const replicas = new Set();
  for (const s of steps) {
    const pid = s.replica, ts = 1000 * (s.end_ms - s.ms), dur = 1000 * s.ms;
    if (!replicas.has(pid)) {
      replicas.add(pid);
      label('process_name', pid, 0, `replica ${pid}`);
      label('thread_name', pid, 0, 'steps');
    }
    const { lanes = [], copies, ...args } = s;
    events.push({ ph: 'X', name: `step ${s.step}`, pid, tid: 0, ts, dur, args });
    for (const lane of lanes) {
      const key = laneKey(s, lane);
      let tid = tracks.get(key);
      if (tid === undefined) {
        tid = tracks.size + 1;
        tracks.set(key, tid);
        label('thread_name', pid, tid, `request ${lane[0]}${lane[1] ? `.${lane[1]}` : ''}`);
      }
      const name = spanNames.get(lane[2]) || lane[2];
      events.push({ ph: 'X', name, pid, tid, ts, dur, args: { rows: lane[3], position: lane[4] } });
    }
  }
  return JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms' });
}
