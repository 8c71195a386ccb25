// Shows Markdown as DOM nodes: markdown-it parses it into tokens, of which nodes are made here. There is no HTML on the way:
// tags in a text are text, and links lead to http, https and mailto only.
import { coloured } from './colours.js';
import { button, copy, h } from './dom.js';
import { MarkdownIt } from './libraries.js';
import { formula, mathematics } from './mathematics.js';

/**
 * @typedef {import('./libraries.js').Token} Token
 * @typedef {import('./libraries.js').Env} Env
 */

const mostWork = 1e8; // of all paragraphs: characters times marks, as some of the parser's costs grow so
const mostDefinitions = 100; // of links, each of which costs as much as there are lines behind it
const marks = /[[\]!`*_~<&\\$:@]/g;

const parser = new MarkdownIt({ linkify: true }).use(mathematics).use(bounded);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
parser.validateLink = () => true; // others than those above are shown as their text

/**
 * What a hostile text would make costly is shown as plain text.
 * @param {MarkdownIt} md
 */
function bounded(md) {
  md.core.ruler.at('inline', (state) => {
    let left = mostWork;
    for (const token of state.tokens) {
      if (token.type !== 'inline') continue;
      const cost = token.content.length * (token.content.match(marks)?.length ?? 0);
      token.children = [];
      if (cost <= left) {
        left -= cost;
        state.md.inline.parse(token.content, state.md, state.env, token.children);
      } else {
        const plain = new state.Token('text', '', 0);
        plain.content = token.content;
        token.children.push(plain);
        token.content = ''; // so that no links are looked for
      }
    }
  });
  const plain = new MarkdownIt();
  plain.block.ruler.enableOnly(['reference']);
  const [define] = plain.block.ruler.getRules('');
  md.block.ruler.at('reference', (state, line, end, silent) => {
    const found = (state.env.definitions ?? 0) < mostDefinitions && define(state, line, end, silent);
    if (found && !silent) state.env.definitions = (state.env.definitions ?? 0) + 1;
    return found;
  });
}

/**
 * Of what a box shows.
 * @type {WeakMap<HTMLElement, { links: string, blocks: { source: string, node: Node }[] }>}
 */
const shown = new WeakMap();

/**
 * Shows a text, which may have grown: blocks that are as they were keep their nodes, and with them selections and places.
 * @param {HTMLElement} box
 * @param {string} text
 */
export function showMarkdown(box, text) {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  /** @type {Env} */
  const env = {};
  const tokens = parser.parse(lines.join('\n'), env);
  const links = JSON.stringify(env.references ?? {});
  const before = shown.get(box);
  const kept = before?.links === links ? before.blocks : [];
  /** @type {{ source: string, node: Node }[]} */
  const blocks = [];
  for (let i = 0, end = 0; i < tokens.length; i = end) {
    end = i + 1;
    if (tokens[i].nesting === 1) while (tokens[end - 1].level > 0 || tokens[end - 1].nesting !== -1) ++end;
    const [from, to] = tokens[i].map ?? [0, lines.length];
    const source = `${tokens[i].type} ${lines.slice(from, to).join('\n')}`;
    const old = kept[blocks.length];
    blocks.push(old?.source === source ? old : { source, node: blockOf(tokens.slice(i, end), env) });
  }
  for (let i = 0; i < blocks.length; ++i)
    if (box.childNodes[i] !== blocks[i].node) {
      while (box.childNodes.length > i) box.lastChild?.remove();
      box.append(blocks[i].node);
    }
  while (box.childNodes.length > blocks.length) box.lastChild?.remove();
  shown.set(box, { links, blocks });
}

/** @param {string} text */
export function markdown(text) {
  const box = h('div');
  showMarkdown(box, text);
  return box;
}

/** @param {Token[]} tokens @param {Env} env */
function blockOf(tokens, env) {
  const box = h('div');
  build(tokens, box, env);
  const made = /** @type {HTMLElement} */ (box.firstChild);
  made.dir ||= 'auto';
  return made;
}

/** @param {Token[]} tokens @param {HTMLElement} out @param {Env} env */
function build(tokens, out, env) {
  const within = [out];
  tokens.forEach((token, i) => {
    const at = within[within.length - 1];
    if (token.hidden) return; // a paragraph of a tight list
    if (token.nesting === -1) return within.pop();
    if (token.type === 'inline') return build(token.children ?? [], at, env);
    if (token.nesting === 0) return at.append(leaf(token, env));
    const made = element(token);
    at.append(token.type === 'table_open' ? h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table' }, made) : made);
    within.push(made);
    if (token.type === 'list_item_open') task(tokens, i, made);
  });
}

/** @param {Token} token @returns {HTMLElement} */
function element(token) {
  if (token.type === 'link_open') return link(token.attrGet('href') ?? '', token.attrGet('title'));
  if (token.type === 'heading_open') return h(/** @type {'h3'} */ (`h${Math.min(6, Number(token.tag[1]) + 2)}`)); // below the page's own
  const side = /right|center/.exec(token.attrGet('style') ?? '');
  return h(/** @type {'p'} */ (token.tag), { start: token.attrGet('start'), class: side && `to-${side[0]}` });
}

/** @param {Token} token @param {Env} env @returns {Node | string} */
function leaf(token, env) {
  switch (token.type) {
    case 'softbreak': return '\n';
    case 'hardbreak': return h('br');
    case 'hr': return h('hr');
    case 'code_inline': return h('code', { dir: 'ltr' }, token.content);
    case 'fence':
    case 'code_block': return codeBlock(token.content.replace(/\n$/, ''), token.info);
    case 'formula': return formula(token.content, token.markup, token.block);
    case 'image': return picture(token, env);
    default: return token.content;
  }
}

/**
 * A picture would be loaded from elsewhere, so it is a link.
 * @param {Token} token
 * @param {Env} env
 */
function picture(token, env) {
  const made = link(token.attrGet('src') ?? '', token.attrGet('title'));
  made.append(parser.renderer.renderInlineAsText(token.children ?? [], parser.options, env) || token.attrGet('src') || '');
  return made;
}

/**
 * Words where the address is not one of those that are allowed.
 * @param {string} to
 * @param {string | null} title
 */
function link(to, title) {
  if (!/^(https?:|mailto:)/i.test(to)) return h('span', { title });
  return h('a', { href: to, title, target: '_blank', rel: 'noopener noreferrer nofollow' });
}

/** @param {string} text @param {string} info */
function codeBlock(text, info) {
  const language = info.trim().split(/\s/)[0];
  return h('div', { class: 'code', dir: 'ltr' },
    h('div', { class: 'code-head' }, h('span', {}, language), button('Copy', () => copy(text), { class: 'quiet', 'aria-label': 'Copy the code' })),
    h('pre', { tabindex: '0' }, h('code', {}, ...coloured(text, language))));
}

/**
 * "[x] done" at the beginning of an item.
 * @param {Token[]} tokens
 * @param {number} i
 * @param {HTMLElement} item
 */
function task(tokens, i, item) {
  const text = tokens[i + 2]?.type === 'inline' && tokens[i + 2].children?.[0];
  const found = text && text.type === 'text' && /^\[([ xX])\](?=\s|$)/.exec(text.content);
  if (!found) return;
  const done = found[1] !== ' ';
  text.content = text.content.slice(3);
  item.classList.add('task');
  item.append(h('input', { type: 'checkbox', checked: done, disabled: true, 'aria-label': done ? 'done' : 'to do' }));
}
