// Mathematics in Markdown: \(…\), \[…\], $$…$$, and $…$ where it is no price. KaTeX makes MathML of it, which browsers draw
// and screen readers read.
import { h } from './dom.js';
import { katex } from './libraries.js';

/**
 * @typedef {import('./libraries.js').InlineState} InlineState
 * @typedef {import('./libraries.js').BlockState} BlockState
 */

const mostFormulas = 500, longest = 2000, mostLines = 50; // per text; characters; of one formula

/**
 * A plug-in of markdown-it.
 * @param {import('./libraries.js').MarkdownIt} md
 */
export function mathematics(md) {
  md.inline.ruler.before('escape', 'formula', within);
  md.block.ruler.before('fence', 'formula', alone, { alt: ['paragraph', 'blockquote', 'list'] });
}

const pairs = [['\\(', '\\)'], ['\\[', '\\]'], ['$$', '$$'], ['$', '$']];

/** @param {string} source @param {{ formulas?: number }} env */
const fits = (source, env) => source.length <= longest && /[\p{L}\p{N}]/u.test(source) && (env.formulas ?? 0) < mostFormulas;

/**
 * In a paragraph.
 * @param {InlineState} state
 * @param {boolean} silent
 */
function within(state, silent) {
  const { src, pos, posMax } = state;
  const pair = pairs.find(([open]) => src.startsWith(open, pos));
  if (!pair) return false;
  const [open, close] = pair;
  const from = pos + open.length;
  const to = open === '$' ? endOfDollars(src, from) : src.indexOf(close, from);
  if (to < 0 || to + close.length > posMax) return false;
  const source = src.slice(from, to);
  if (!fits(source, state.env)) return false;
  if (!silent) {
    const token = state.push('formula', 'math', 0);
    token.content = source;
    token.markup = open;
    state.env.formulas = (state.env.formulas ?? 0) + 1;
  }
  state.pos = to + close.length;
  return true;
}

/**
 * Where $…$ ends; -1 if these are dollars: no space is within the marks, and no letter or digit outside.
 * @param {string} src
 * @param {number} from
 */
function endOfDollars(src, from) {
  if (/[\p{L}\p{N}$]/u.test(src[from - 2] ?? '') || /[\s$]/.test(src[from] ?? ' ')) return -1;
  for (let at = from; at < src.length && at - from <= longest && src[at] !== '\n'; ++at)
    if (src[at] === '\\') ++at;
    else if (src[at] === '$') return /\s/.test(src[at - 1]) || /[\p{L}\p{N}$]/u.test(src[at + 1] ?? '') ? -1 : at;
  return -1;
}

/**
 * On lines of its own.
 * @param {BlockState} state
 * @param {number} line
 * @param {number} end
 * @param {boolean} silent
 */
function alone(state, line, end, silent) {
  const first = state.src[state.bMarks[line] + state.tShift[line]];
  if (first !== '$' && first !== '\\') return false;
  /** @param {number} i */
  const textOf = (i) => state.src.slice(state.bMarks[i] + state.tShift[i], state.eMarks[i]).trim();
  const pair = state.sCount[line] - state.blkIndent < 4 && pairs.slice(1, 3).find(([open]) => textOf(line).startsWith(open));
  if (!pair) return false;
  const [open, close] = pair;
  const lines = [textOf(line).slice(open.length)];
  for (let i = line; ; lines.push(textOf(++i))) {
    const last = lines[lines.length - 1];
    const found = last.indexOf(close);
    if (found >= 0 && found !== last.length - close.length) return false; // text follows: a part of a paragraph
    if (found >= 0) {
      lines[lines.length - 1] = last.slice(0, found);
      const source = lines.join('\n');
      if (!fits(source, state.env)) return false;
      if (silent) return true;
      const token = state.push('formula', 'math', 0);
      token.block = true;
      token.content = source;
      token.markup = open;
      token.map = [line, i + 1];
      state.line = i + 1;
      state.env.formulas = (state.env.formulas ?? 0) + 1;
      return true;
    }
    if (i + 1 >= end || i - line > mostLines || state.isEmpty(i + 1) || state.sCount[i + 1] < state.blkIndent) return false;
  }
}

/**
 * A formula; where KaTeX cannot read it, its source.
 * @param {string} source
 * @param {string} open the mark ahead of it
 * @param {boolean} block
 */
export function formula(source, open, block) {
  const display = open === '\\[' || open === '$$';
  const box = h(block ? 'div' : 'span', { class: display ? 'formula display' : 'formula', dir: 'ltr' });
  try {
    katex.render(source, box, { output: 'mathml', displayMode: display, throwOnError: true, strict: 'ignore', trust: false,
      maxExpand: 200, maxSize: 20 });
    for (const table of box.querySelectorAll('mtable[columnalign]')) align(table);
  } catch {
    box.className = '';
    box.textContent = open + source + (pairs.find((pair) => pair[0] === open)?.[1] ?? '');
  }
  return box;
}

/**
 * Columns have their sides by attributes that Chromium does not know.
 * @param {Element} table
 */
function align(table) {
  const sides = (table.getAttribute('columnalign') ?? '').split(' ');
  if (table.getAttribute('columnspacing')?.startsWith('0')) table.classList.add('close');
  for (const row of table.children)
    [...row.children].filter((cell) => !cell.matches('.mtr-glue, .mml-eqn-num')).forEach((cell, i) => {
      cell.classList.add(`to-${sides[i] ?? sides[sides.length - 1]}`);
    });
}
