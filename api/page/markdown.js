// Renders Markdown as DOM nodes. There is no HTML on the way: tags in a text are text, and links lead to http, https and
// mailto only. A subset of CommonMark with tables and strike-through, as models write it.
import { button, copy, h } from './dom.js';

/** @param {string} text @returns {DocumentFragment} */
export function markdown(text) {
  const out = document.createDocumentFragment();
  blocks(text.replaceAll('\r\n', '\n').split('\n'), out, 0);
  return out;
}

const deepest = 16; // of lists and quotes within each other
const longest = 4000; // characters of a line that is looked into: a hostile text must not cost much
const fenceLine = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const itemLine = /^( {0,3})([-*+]|\d{1,9}[.)])(?: +|$)(.*)$/;
const ruleLine = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const tableRule = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

/** @param {string[]} lines @param {Node} out @param {number} depth */
function blocks(lines, out, depth) {
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    if (line.length > longest) {
      out.appendChild(h('p', {}, line));
      ++i;
      continue;
    }
    const fence = fenceLine.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    if (!line.trim()) {
      ++i;
    } else if (fence) {
      i = codeBlock(lines, i, fence, out);
    } else if (heading) {
      out.appendChild(h(/** @type {'h3'} */ (`h${Math.min(6, heading[1].length + 2)}`), {}, inline(heading[2].trim().replace(/ #{1,6}$/, ''))));
      ++i;
    } else if (ruleLine.test(line)) {
      out.appendChild(h('hr'));
      ++i;
    } else if (/^ {0,3}>/.test(line) && depth < deepest) {
      const inner = [];
      while (i < lines.length && /^ {0,3}>/.test(lines[i])) inner.push(lines[i++].replace(/^ {0,3}> ?/, ''));
      const quote = h('blockquote');
      blocks(inner, quote, depth + 1);
      out.appendChild(quote);
    } else if (itemLine.test(line) && depth < deepest) {
      i = list(lines, i, out, depth);
    } else if (line.includes('|') && i + 1 < lines.length && lines[i + 1].includes('-') && lines[i + 1].length < 300 && tableRule.test(lines[i + 1])) {
      i = table(lines, i, out);
    } else {
      const start = i++;
      while (i < lines.length && lines[i].trim() && lines[i].length <= longest && !fenceLine.test(lines[i]) && !/^ {0,3}(#{1,6}\s|>)/.test(lines[i]) &&
        !itemLine.test(lines[i]) && !ruleLine.test(lines[i])) ++i;
      out.appendChild(h('p', {}, inline(lines.slice(start, i).join('\n'))));
    }
  }
}

/** @param {string[]} lines @param {number} i @param {RegExpExecArray} fence @param {Node} out */
function codeBlock(lines, i, fence, out) {
  const end = new RegExp(`^ {0,3}\\${fence[1][0]}{${fence[1].length},}\\s*$`);
  const body = [];
  for (++i; i < lines.length && !end.test(lines[i]); ++i) body.push(lines[i]);
  const text = body.join('\n');
  out.appendChild(h('div', { class: 'code' },
    h('div', { class: 'code-head' }, h('span', {}, fence[2].trim().split(/\s/)[0]), button('Copy', () => copy(text), { class: 'quiet' })),
    h('pre', { tabindex: '0' }, h('code', {}, text))));
  return i + 1;
}

/** @param {string[]} lines @param {number} i @param {Node} out @param {number} depth */
function list(lines, i, out, depth) {
  const first = /** @type {RegExpExecArray} */ (itemLine.exec(lines[i]));
  const ordered = /\d/.test(first[2]);
  const box = h(ordered ? 'ol' : 'ul', ordered && first[2] !== '1.' ? { start: parseInt(first[2], 10) } : {});
  while (i < lines.length) {
    const item = itemLine.exec(lines[i]);
    if (!item || /\d/.test(item[2]) !== ordered || ruleLine.test(lines[i])) break;
    const indent = item[1].length + item[2].length + 1;
    const inner = [item[3]];
    for (++i; i < lines.length; ++i) {
      const line = lines[i];
      if (!line.trim()) {
        const next = lines[i + 1] ?? '';
        if (!/^ {2,}\S/.test(next)) break;
        inner.push('');
      } else if (/^ {2,}/.test(line)) {
        inner.push(line.replace(new RegExp(`^ {1,${indent}}`), ''));
      } else if (itemLine.test(line) || fenceLine.test(line) || /^ {0,3}(#{1,6}\s|>)/.test(line)) {
        break;
      } else {
        inner.push(line);
      }
    }
    const entry = h('li');
    if (inner.length === 1) entry.append(inline(inner[0]));
    else blocks(inner, entry, depth + 1);
    if (entry.childNodes.length === 1 && entry.firstChild instanceof HTMLParagraphElement)
      entry.replaceChildren(...entry.firstChild.childNodes);
    box.append(entry);
    while (i < lines.length && !lines[i].trim() && itemLine.test(lines[i + 1] ?? '')) ++i;
  }
  out.appendChild(box);
  return i;
}

/** @param {string} line */
function cells(line) {
  return line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
}

/** @param {string[]} lines @param {number} i @param {Node} out */
function table(lines, i, out) {
  const head = cells(lines[i]);
  const sides = cells(lines[i + 1]).map((cell) => cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : '');
  /** @param {'th' | 'td'} tag @param {string[]} row */
  const rowOf = (tag, row) => h('tr', {}, ...head.map((_, column) =>
    h(tag, { class: sides[column] ? `to-${sides[column]}` : null }, inline(row[column] ?? ''))));
  const body = h('tbody');
  for (i += 2; i < lines.length && lines[i].includes('|') && lines[i].trim(); ++i) body.append(rowOf('td', cells(lines[i])));
  out.appendChild(h('div', { class: 'table', tabindex: '0' }, h('table', {}, h('thead', {}, rowOf('th', head)), body)));
  return i;
}

// The kinds of what stands within a line. Each alternative ends at a bounded place, so that no text takes long.
const spans = new RegExp([
  '\\\\([!-/:-@[-`{-~])', // 1: escaped
  '(`{1,8})(?!`)((?:(?!\\2)[^\\n]|\\n){1,1000}?)\\2(?!`)', // 2, 3: code
  '!?\\[([^\\[\\]\\n]{0,1000})\\]\\(\\s{0,9}<?([^\\s<>()]{0,2000})>?(?:\\s+"[^"\\n]{0,500}")?\\s{0,9}\\)', // 4, 5: link
  '<((?:https?://|mailto:)[^\\s<>]{1,2000})>', // 6
  '\\*\\*(?=\\S)((?:[^*\\n]|\\*(?!\\*)){1,1000}?)\\*\\*', // 7: strong
  '__(?=\\S)([^_\\n]{1,1000})__(?![A-Za-z0-9])', // 8
  '\\*(?=[^\\s*])([^*\\n]{1,1000})\\*', // 9: emphasis
  '(?<![A-Za-z0-9_])_(?=[^\\s_])([^_\\n]{1,1000})_(?![A-Za-z0-9_])', // 10
  '~~(?=\\S)([^~\\n]{1,1000})~~', // 11
  '\\bhttps?://[^\\s<>()\\[\\]"\']{1,1000}[^\\s<>()\\[\\]"\'.,;:!?]', // a bare address
].join('|'), 'g');

/** @param {string} text @param {number} [depth] @returns {DocumentFragment} */
function inline(text, depth = 0) {
  const out = document.createDocumentFragment();
  let at = 0;
  if (depth < 4 && text.length < 20000)
    for (const found of text.matchAll(spans)) {
      plain(text.slice(at, found.index), out);
      out.append(span(found, depth));
      at = (found.index ?? 0) + found[0].length;
    }
  plain(text.slice(at), out);
  return out;
}

/** @param {string} text @param {DocumentFragment} out */
function plain(text, out) {
  const lines = text.split(/(?: {2,}|\\)\n/);
  lines.forEach((line, i) => {
    if (i > 0) out.append(h('br'));
    if (line) out.append(line);
  });
}

/** @param {RegExpMatchArray} found @param {number} depth @returns {Node} */
function span(found, depth) {
  const [all, escaped, , code, label, target, address, strong, strong2, emphasis, emphasis2, struck] = found;
  if (escaped) return new Text(escaped);
  if (code !== undefined) return h('code', {}, code.replace(/^ (.*) $/s, '$1'));
  if (target !== undefined) return link(target, label || target, depth);
  if (address) return link(address, address, 9);
  const inner = strong ?? strong2;
  if (inner !== undefined) return h('strong', {}, inline(inner, depth + 1));
  const leaned = emphasis ?? emphasis2;
  if (leaned !== undefined) return h('em', {}, inline(leaned, depth + 1));
  if (struck !== undefined) return h('del', {}, inline(struck, depth + 1));
  return link(all, all, 9);
}

/**
 * A link that opens elsewhere and tells that page nothing; of a target that is none, the text. Pictures are links, too:
 * the page loads nothing that a model names.
 * @param {string} target
 * @param {string} label
 * @param {number} depth
 */
function link(target, label, depth) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return new Text(label);
  }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return new Text(label);
  return h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow' }, inline(label, depth + 1));
}
