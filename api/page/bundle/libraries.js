// The libraries of the page, from Debian's packages (node-markdown-it, node-prismjs, libjs-katex). The build bundles them
// into one file, /page/libraries.js; what it exports has its types in ../libraries.d.ts.
/*! markdown-it, linkify-it, mdurl: Vitaly Puzrin, Alex Kocharin; uc.micro: Mathias Bynens; KaTeX: Khan Academy and others; Prism: Lea Verou. All MIT. */
export { default as MarkdownIt } from 'markdown-it';
export { default as katex } from 'katex/katex.mjs';

import './manual.js';
import Prism from 'prismjs/components/prism-core.js';
// Those that others extend come first.
import 'prismjs/components/prism-markup.js';
import 'prismjs/components/prism-css.js';
import 'prismjs/components/prism-clike.js';
import 'prismjs/components/prism-javascript.js';
import 'prismjs/components/prism-typescript.js';
import 'prismjs/components/prism-jsx.js';
import 'prismjs/components/prism-tsx.js';
import 'prismjs/components/prism-c.js';
import 'prismjs/components/prism-cpp.js';
import 'prismjs/components/prism-csharp.js';
import 'prismjs/components/prism-java.js';
import 'prismjs/components/prism-kotlin.js';
import 'prismjs/components/prism-swift.js';
import 'prismjs/components/prism-go.js';
import 'prismjs/components/prism-rust.js';
import 'prismjs/components/prism-python.js';
import 'prismjs/components/prism-ruby.js';
import 'prismjs/components/prism-markup-templating.js';
import 'prismjs/components/prism-php.js';
import 'prismjs/components/prism-perl.js';
import 'prismjs/components/prism-lua.js';
import 'prismjs/components/prism-r.js';
import 'prismjs/components/prism-julia.js';
import 'prismjs/components/prism-haskell.js';
import 'prismjs/components/prism-scala.js';
import 'prismjs/components/prism-bash.js';
import 'prismjs/components/prism-powershell.js';
import 'prismjs/components/prism-sql.js';
import 'prismjs/components/prism-json.js';
import 'prismjs/components/prism-yaml.js';
import 'prismjs/components/prism-toml.js';
import 'prismjs/components/prism-ini.js';
import 'prismjs/components/prism-diff.js';
import 'prismjs/components/prism-docker.js';
import 'prismjs/components/prism-makefile.js';
import 'prismjs/components/prism-cmake.js';
import 'prismjs/components/prism-latex.js';
export { Prism };
