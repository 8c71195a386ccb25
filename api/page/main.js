// Starts the page: its views, the theme, the server's state, and the question for a key.
import { byId, button, dialog, h } from './dom.js';
import { onKeyNeeded } from './link.js';
import { startChat } from './chat.js';
import { showEngine } from './engine.js';
import { showFigures } from './figures.js';
import { recall, remember } from './store.js';

const names = ['chat', 'engine', 'figures'];

/** @param {string} name */
function show(name) {
  for (const one of names) {
    const tab = byId(`tab-${one}`);
    tab.setAttribute('aria-selected', String(one === name));
    tab.tabIndex = one === name ? 0 : -1;
    byId(`view-${one}`).hidden = one !== name;
  }
  if (location.hash.slice(1) !== name) history.replaceState(null, '', `#${name}`);
  showEngine(byId('view-engine'), name === 'engine');
  showFigures(byId('view-figures'), name === 'figures');
}

for (const name of names) {
  const tab = byId(`tab-${name}`);
  tab.addEventListener('click', () => show(name));
  tab.addEventListener('keydown', (event) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? names.length - 1 : 0;
    if (!step) return;
    const next = names[(names.indexOf(name) + step) % names.length];
    show(next);
    byId(`tab-${next}`).focus();
  });
}

const themes = ['auto', 'light', 'dark'];
let theme = recall('theme', 'auto');

function paint() {
  document.documentElement.dataset.theme = theme;
  byId('theme').textContent = `Theme: ${theme}`;
  dispatchEvent(new Event('themechange'));
}
byId('theme').addEventListener('click', () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  remember('theme', theme);
  paint();
});
paint();

onKeyNeeded(async (wrong) => (await dialog('API key', (close) => {
  const input = h('input', { type: 'password', autocomplete: 'off', 'aria-label': 'API key' });
  return [
    h('p', {}, wrong ? 'The server does not know this key.' : 'This server wants an API key. It is kept until this tab is closed.'),
    h('form', { class: 'row', onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); close(input.value); } }, input,
      h('button', { class: 'main', type: 'submit' }, 'Use it')),
  ];
})) || '');

async function watchHealth() {
  const state = byId('state');
  for (;;) {
    let text = '', ready = false;
    try {
      const answer = await fetch('/health');
      const told = await answer.json();
      ready = answer.ok;
      text = told.status === 'ok' ? '' : told.status === 'loading' ? `loading ${Math.round(100 * told.progress)} %` : told.status;
    } catch {
      text = 'not reachable';
    }
    if (state.textContent !== text) state.textContent = text;
    if (ready && !started) start();
    await new Promise((done) => setTimeout(done, ready ? 5000 : 1000));
  }
}

let started = false;
function start() {
  started = true;
  startChat(byId('view-chat'));
}

show(names.includes(location.hash.slice(1)) ? location.hash.slice(1) : 'chat');
watchHealth();
