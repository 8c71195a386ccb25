// Colours of code, by Prism.
import { h } from './dom.js';
import { Prism } from './libraries.js';

/** @typedef {import('./libraries.js').Pieces} Pieces */

// Some of Prism's patterns take time that grows with the square of a line, or of the whole; the worst go.
const longest = 10000, longestLine = 400; // characters
for (const name of ['return-type', 'class-name', 'type-list', 'constructor-invocation']) delete Prism.languages.csharp[name];
delete Prism.languages.css.selector;

/**
 * Names that Prism does not know.
 * @type {Record<string, string>}
 */
const others = { 'c++': 'cpp', h: 'c', hpp: 'cpp', cc: 'cpp', cxx: 'cpp', cuda: 'cpp', cu: 'cpp', rs: 'rust', golang: 'go', 'c#': 'csharp',
  zsh: 'bash', console: 'bash', terminal: 'bash', ps1: 'powershell', jsonc: 'json', json5: 'json', jsonl: 'json', mjs: 'javascript',
  python3: 'python', patch: 'diff', make: 'makefile', htm: 'markup', vue: 'markup', scss: 'css', less: 'css', sqlite: 'sql',
  postgresql: 'sql', mysql: 'sql', conf: 'ini', cfg: 'ini', pl: 'perl', jl: 'julia' };

/**
 * By Prism's names, one of a few.
 * @type {Record<string, string>}
 */
const shades = {};
for (const [shade, names] of Object.entries({
  comment: 'comment prolog doctype cdata shebang hashbang coord',
  string: 'string char attr-value template-string triple-quoted-string string-interpolation regex url heredoc-string inserted inserted-sign',
  keyword: 'keyword boolean atrule rule important directive control tag annotation decorator null deleted deleted-sign target',
  number: 'number constant symbol unit hexcode date builtin key property attr-name',
  name: 'function function-definition function-name class-name selector macro title variable',
})) for (const name of names.split(' ')) shades[name] = shade;

/**
 * Code as nodes; plain text where the language is not known or the text is too long.
 * @param {string} text
 * @param {string} language as it stands behind the fence
 * @returns {(Node | string)[]}
 */
export function coloured(text, language) {
  const name = (/^[\w+#-]+/.exec(language)?.[0] ?? '').toLowerCase();
  const known = Object.hasOwn(others, name) ? others[name] : name;
  const grammar = Object.hasOwn(Prism.languages, known) && Prism.languages[known];
  if (typeof grammar !== 'object' || text.length > longest || text.split('\n').some((line) => line.length > longestLine))
    return [text];
  return nodesOf(Prism.tokenize(text, grammar));
}

/** @param {Pieces} pieces @returns {(Node | string)[]} */
function nodesOf(pieces) {
  if (typeof pieces === 'string') return [pieces];
  if (Array.isArray(pieces)) return pieces.flatMap(nodesOf);
  const inner = nodesOf(pieces.content);
  return Object.hasOwn(shades, pieces.type) ? [h('span', { class: `code-${shades[pieces.type]}` }, ...inner)] : inner;
}
