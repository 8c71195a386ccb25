// The token view of an answer: each token coloured by its probability, with the alternatives, any of which the answer can
// go on from.
import { focusKey, h } from './dom.js';

/** @typedef {import('./conversation.js').Token} Token */

/** @type {HTMLElement | null} */
let open = null;
let opener = ''; // the key of the token that it belongs to: the answer may be drawn again while it is open

/** Who was in it is at its token again. */
export function closePopover() {
  const inside = open?.contains(document.activeElement);
  open?.remove();
  if (inside) focusKey(opener);
  open = null;
}
addEventListener('keydown', (event) => { if (event.key === 'Escape') closePopover(); });
addEventListener('pointerdown', (event) => { if (open && !open.contains(/** @type {Node} */ (event.target))) closePopover(); });

/** @param {number | null} logprob */
const percent = (logprob) => logprob === null ? '' : `${(100 * Math.exp(logprob)).toFixed(logprob > -4.6 ? 0 : 2)} %`;

/** @param {string} text */ // as it is written, with what cannot be seen
const visible = (text) => text.replaceAll('\n', '⏎').replaceAll('\t', '⇥').replace(/^ | $/g, '␣') || '∅';

const shades = [0.9, 0.6, 0.3, 0.1, 0]; // the least probability of each class
/** @param {number | null} logprob */
const shade = (logprob) => logprob === null ? '' : ` p${shades.findIndex((least) => Math.exp(logprob) >= least)}`;

/**
 * What the colours say.
 * @param {boolean} branched
 */
function legend(branched) {
  return h('p', { class: 'legend token-legend' }, 'Probability of each token:', ...shades.map((least, i) =>
    h('span', { class: `p${i}` }, i === 0 ? `${100 * least} % and more` : `${100 * least} to ${100 * shades[i - 1]} %`)),
  branched && h('span', { class: 'taken-over' }, 'taken over'));
}

/**
 * @param {string} key of the turn; the focused token is found again by it when the turn is drawn again
 * @param {Token[]} tokens
 * @param {number} kept how many were taken over from another answer
 * @param {((place: number, id: number, text: string) => void) | null} branch null: there is no going on from here
 */
export function tokenView(key, tokens, kept, branch) {
  const box = h('div', { class: 'tokens', role: 'group', 'aria-label': 'Tokens; arrow keys move, Enter shows alternatives' });
  const spans = tokens.map((token, i) => {
    const span = h('span', { class: `tok${shade(token.logprob)}${i < kept ? ' kept' : ''}`, role: 'button',
      tabindex: i === 0 ? '0' : '-1', 'aria-label': `${visible(token.text)} ${percent(token.logprob)}` });
    span.textContent = token.text.replaceAll('\n', '⏎\n') || '∅';
    span.dataset.place = String(i);
    span.dataset.key = `${key}-token-${i}`;
    return span;
  });
  box.append(...spans);
  const view = h('div', { class: 'token-view' }, legend(kept > 0), box);
  /** @param {Event} event */
  const placeOf = (event) => {
    const at = event.target instanceof HTMLElement ? event.target.dataset.place : undefined;
    return at === undefined ? -1 : Number(at);
  };
  /** @param {number} i @param {boolean} focus */
  const show = (i, focus) => popover(spans[i], tokens[i], focus,
    branch && ((id, text) => { closePopover(); branch(i, id, text); }));
  let reached = spans[0]; // by the tabulator key
  box.addEventListener('focusin', (event) => {
    reached.tabIndex = -1;
    reached = spans[placeOf(event)] || reached;
    reached.tabIndex = 0;
  });
  let under = -1; // the pointer; text that moves below it opens nothing
  box.addEventListener('mousemove', (event) => {
    const i = placeOf(event);
    if (i >= 0 && i !== under) show(i, false);
    under = i;
  });
  box.addEventListener('click', (event) => { const i = placeOf(event); if (i >= 0) show(i, true); });
  box.addEventListener('keydown', (event) => {
    const i = placeOf(event);
    if (i < 0) return;
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      show(i, true);
    } else if (step && spans[i + step]) {
      event.preventDefault();
      spans[i + step].focus();
    }
  });
  return view;
}

/** @param {HTMLElement} at @param {Token} token @param {boolean} focus @param {((id: number, text: string) => void) | null} take */
function popover(at, token, focus, take) {
  closePopover();
  const rows = token.top.map((other) => {
    const chosen = other.id === token.id;
    const bar = h('span', { class: 'bar-of' });
    bar.style.width = `${Math.max(1, 100 * Math.exp(other.logprob))}%`;
    return h('button', { type: 'button', class: `alternative${chosen ? ' chosen' : ''}`, disabled: !take,
      title: take ? 'Go on from here' : '', onclick: () => { if (take) take(other.id, other.text); } },
    h('code', {}, visible(other.text)), h('span', { class: 'bar-box' }, bar), h('span', { class: 'num' }, percent(other.logprob)));
  });
  open = h('div', { class: 'popover', role: 'dialog', 'aria-label': 'Alternatives' },
    h('p', { class: 'dim' }, `${visible(token.text)}  ${percent(token.logprob)}, id ${token.id}`), ...rows,
    take && rows.length ? h('p', { class: 'dim' }, 'Choose one to go on from it.') : null);
  opener = at.dataset.key || '';
  document.body.append(open);
  open.addEventListener('mouseleave', closePopover);
  const from = at.getBoundingClientRect();
  const width = open.offsetWidth, height = open.offsetHeight;
  open.style.left = `${Math.max(8, Math.min(from.left + scrollX, innerWidth - width - 8))}px`;
  const below = from.bottom + height + 8 < innerHeight || from.top < height + 8;
  open.style.top = `${scrollY + (below ? from.bottom + 2 : from.top - height - 2)}px`;
  if (focus) open.querySelector('button')?.focus();
}
