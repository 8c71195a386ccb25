// Makes elements. All text goes in as text nodes, never as HTML.

/**
 * An element: properties that begin with `on` are listeners, functions of the event; `class` and the rest attributes.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked' || name === 'selected' || name === 'disabled' || name === 'hidden')
      /** @type {any} */ (made)[name] = value;
    else made.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) if (child) made.append(child);
  return made;
}

/**
 * Gives an element these children; those that it has stay where they are, and keep what is selected and scrolled in them.
 * @param {HTMLElement} box
 * @param {Node[]} nodes
 */
export function setChildren(box, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...box.childNodes]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, i) => { if (box.childNodes[i] !== node) box.insertBefore(node, box.childNodes[i] ?? null); });
}

/**
 * The element with this id, which must be there.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`there is no element ${id}`);
  return found;
}

/**
 * Focuses what has this key, if it is shown: what was drawn again keeps its key.
 * @param {string} key
 */
export function focusKey(key) {
  /** @type {HTMLElement | null} */ (document.querySelector(`[data-key="${CSS.escape(key)}"]`))?.focus();
}

/**
 * A button with a visible text, and what it does.
 * @param {string} text
 * @param {(event: Event) => void} action
 * @param {Record<string, any>} [props]
 */
export function button(text, action, props = {}) {
  return h('button', { type: 'button', onclick: action, ...props }, text);
}

/**
 * Tells screen readers.
 * @param {string} text
 */
export function announce(text) {
  byId('announcer').textContent = text;
}

/**
 * A modal dialog. Resolves with what `build` passes to its argument, or null if it is dismissed.
 * @template T
 * @param {string} title
 * @param {(close: (value: T | null) => void) => Node[]} build
 * @returns {Promise<T | null>}
 */
export function dialog(title, build) {
  return new Promise((resolve) => {
    /** @type {T | null} */
    let result = null;
    const box = h('dialog', { 'aria-label': title, onclose: () => { box.remove(); resolve(result); } });
    box.append(h('h2', {}, title), ...build((value) => { result = value; box.close(); }));
    document.body.append(box);
    box.showModal();
  });
}

/**
 * Saves a text as a file of the user's.
 * @param {string} name
 * @param {string} text
 */
export function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/**
 * Lets the user choose a file; null if none is chosen.
 * @param {string} accept
 * @param {(files: File[]) => void} take
 */
export function choose(accept, take) {
  const input = h('input', { type: 'file', accept, multiple: true });
  input.addEventListener('change', () => take([...(input.files || [])]));
  input.click();
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not a secure context: the older way
    const area = h('textarea', { class: 'unseen', value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  announce('Copied');
}
