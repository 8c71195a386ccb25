// The list of conversations: search, names, deletion, export and import.
import { announce, button, choose, dialog, h, save } from './dom.js';
import * as tree from './conversation.js';
import { erase, keep } from './store.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */

/**
 * What the chat does with it: `show` another one (null: a new one), and draw the list again.
 * @typedef {{ current: () => Conversation, show: (what: Conversation | null) => void }} Actions
 */

/**
 * Newest first.
 * @type {Conversation[]}
 */
export const all = [];

/** @type {Actions} */
let actions;
/**
 * The one whose name is being changed.
 * @type {Conversation | null}
 */
let renamed = null;

const list = h('ul', { class: 'conversations' });
const search = h('input', { type: 'search', placeholder: 'Search conversations', 'aria-label': 'Search conversations', dir: 'auto',
  oninput: () => showList() });
const none = h('p', { class: 'dim', hidden: true }, 'No conversation has this in its name or its texts.');

/** @param {Actions} does */
export function conversationList(does) {
  actions = does;
  return h('aside', { class: 'pane sidebar', 'aria-label': 'Conversations' },
    h('div', { class: 'row' }, button('New conversation', () => actions.show(null), { class: 'main' })), search, list, none,
    h('div', { class: 'row' }, button('Export', exportAll, { class: 'quiet' }), button('Import', importSome, { class: 'quiet' })));
}

/** @param {Conversation} one @param {string} wanted in small letters */
function has(one, wanted) {
  return one.title.toLowerCase().includes(wanted)
    || Object.values(one.turns).some((turn) => turn.content.toLowerCase().includes(wanted));
}

/** Draws the list; not while a name is typed into it. */
export function showList() {
  if (renamed && list.querySelector('input') === document.activeElement) return;
  const wanted = search.value.trim().toLowerCase();
  const found = wanted ? all.filter((one) => has(one, wanted)) : all;
  none.hidden = !wanted || found.length > 0;
  list.replaceChildren(...found.map((one) => h('li', {}, ...(one === renamed ? [nameField(one)] : [
    button(one.title, () => actions.show(one),
      { class: 'quiet', dir: 'auto', 'aria-current': one === actions.current() ? 'true' : null, 'data-key': `open-${one.id}` }),
    button('✎', () => rename(one), { class: 'quiet', title: 'Rename', 'aria-label': `Rename ${one.title}`, 'data-key': `rename-${one.id}` }),
    button('×', () => remove(one), { class: 'quiet', title: 'Delete', 'aria-label': `Delete ${one.title}` })]))));
}

/** @param {Conversation} one */
function rename(one) {
  renamed = one;
  showList();
  list.querySelector('input')?.select();
}

/** @param {Conversation} one */
function nameField(one) {
  const field = h('input', { value: one.title, 'aria-label': 'Name of the conversation', dir: 'auto', maxlength: 200 });
  const end = (/** @type {boolean} */ keeps) => {
    if (renamed !== one) return;
    renamed = null;
    const title = field.value.trim();
    if (keeps && title && title !== one.title) {
      one.title = title;
      tree.changesOf(one).fields.add('title');
      if (all.includes(one)) keep(one);
    }
    showList();
    /** @type {HTMLElement | null} */ (list.querySelector(`[data-key="rename-${one.id}"]`))?.focus();
  };
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' && (event.key !== 'Enter' || event.isComposing || event.keyCode === 229)) return;
    event.stopPropagation();
    event.preventDefault(); // the key would press the button that gets the focus
    end(event.key === 'Enter');
  });
  field.addEventListener('blur', () => end(true));
  return field;
}

/** @param {Conversation} one */
async function remove(one) {
  const sure = await dialog('Delete this conversation?', (close) => [h('p', { dir: 'auto' }, one.title), h('div', { class: 'row' },
    button('Delete', () => close(true), { class: 'main' }), button('Cancel', () => close(null), { class: 'quiet' }))]);
  if (!sure) return;
  forget(one.id);
  await erase(one.id);
}

/** @param {string} id */
export function forget(id) {
  const at = all.findIndex((one) => one.id === id);
  if (at < 0) return;
  const [one] = all.splice(at, 1);
  if (one === actions.current()) actions.show(all[0] ?? null);
  else showList();
}

export function exportAll() {
  save(`troupe-conversations-${new Date().toISOString().slice(0, 10)}.json`, tree.exported(all));
}

function importSome() {
  choose('application/json,.json', async (chosen) => {
    for (const file of chosen)
      try {
        const made = tree.imported(await file.text());
        for (const one of made) {
          all.unshift(one);
          tree.changesOf(one).fields.add('title');
          keep(one);
        }
        if (made[0]) actions.show(made[0]);
        announce(`${made.length} conversations imported`);
      } catch (why) {
        await dialog('The file cannot be imported', (close) => [h('p', {}, why instanceof Error ? why.message : String(why)),
          button('Close', () => close(null), { class: 'main' })]);
      }
    showList();
  });
}
