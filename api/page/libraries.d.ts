// What the page uses of its libraries (bundle/libraries.js).

export interface Token {
  type: string; tag: string; nesting: -1 | 0 | 1; level: number; hidden: boolean; content: string; info: string;
  markup: string; map: [number, number] | null; children: Token[] | null; block: boolean;
  attrGet(name: string): string | null;
}
export type Env = { references?: Record<string, unknown>; definitions?: number; formulas?: number };
export interface CoreState { tokens: Token[]; env: Env; md: MarkdownIt; Token: new (type: string, tag: string, nesting: number) => Token }
export interface InlineState {
  src: string; pos: number; posMax: number; env: Env;
  push(type: string, tag: string, nesting: number): Token;
}
export interface BlockState {
  src: string; line: number; bMarks: number[]; eMarks: number[]; tShift: number[]; sCount: number[]; blkIndent: number; env: Env;
  push(type: string, tag: string, nesting: number): Token;
  isEmpty(line: number): boolean;
}
export type BlockRule = (state: BlockState, line: number, end: number, silent: boolean) => boolean;
export type InlineRule = (state: InlineState, silent: boolean) => boolean;
interface Ruler<Rule> {
  at(name: string, rule: Rule): void;
  before(name: string, added: string, rule: Rule, options?: { alt: string[] }): void;
  enableOnly(names: string[]): void;
  getRules(chain: string): Rule[];
}
export class MarkdownIt {
  constructor(options?: { linkify?: boolean });
  core: { ruler: Ruler<(state: CoreState) => void> };
  block: { ruler: Ruler<BlockRule> };
  inline: { ruler: Ruler<InlineRule>; parse(text: string, md: MarkdownIt, env: Env, out: Token[]): void };
  linkify: { set(options: Record<string, boolean>): void };
  options: object;
  renderer: { renderInlineAsText(tokens: Token[], options: object, env: Env): string };
  validateLink: (url: string) => boolean;
  use(plugin: (md: MarkdownIt) => void): MarkdownIt;
  parse(text: string, env: Env): Token[];
}

export const katex: { render(source: string, into: HTMLElement, options: object): void };

export interface Piece { type: string; content: Pieces }
export type Pieces = string | Piece | (string | Piece)[];
export const Prism: { tokenize(text: string, grammar: object): (string | Piece)[]; languages: Record<string, Record<string, unknown>> };
