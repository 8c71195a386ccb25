// Starts the page: its views, the theme, the server's state, and the question for a key.
import { byId, button, dialog, h } from './dom.js';
import { onKeyNeeded } from './link.js';
import { refreshModels, startChat } from './chat.js';
import { offerModels, showEngine } from './engine.js';
import { showFigures } from './figures.js';
import { showMemory } from './memory.js';
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
  byId('memory').hidden = name !== 'engine' || byId('memory').dataset.several !== 'true';
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
  byId('theme').replaceChildren(h('span', { class: 'wide-only' }, `Theme: ${theme}`), h('span', { class: 'narrow-only', 'aria-hidden': 'true' }, '◐'));
  byId('theme').setAttribute('aria-label', `Theme: ${theme}`);
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

/** @type {string | undefined} */
let loaded;

/** Of several models, which come and go: while the engine is shown. */
async function watchMemory() {
  const box = byId('memory');
  if (byId('view-engine').hidden || box.dataset.several === 'false') return;
  try {
    const now = await showMemory(box);
    if (loaded !== undefined && now !== loaded) await refreshModels();
    loaded = now;
    offerModels();
  } catch {
    return; // the server's state tells why
  }
  box.hidden = byId('view-engine').hidden || box.dataset.several !== 'true';
}

/** The server's state, which the page waits for. */
async function watchHealth() {
  const state = byId('state'), wait = h('p', { class: 'welcome waiting' });
  byId('view-chat').append(wait);
  for (let wasReady = false, started = false; ;) {
    let text = '', ready = false;
    try {
      const answer = await fetch('/health');
      const told = await answer.json();
      ready = answer.ok;
      text = told.status === 'ok' ? '' : told.status === 'loading' ? `The model is loading: ${Math.round(100 * told.progress)} %`
        : told.status === 'draining' ? 'The server is stopping' : [told.status, told.detail].filter(Boolean).join(': ');
    } catch {
      text = `The server at ${location.host} cannot be reached; trying again`;
    }
    if (state.textContent !== text) state.textContent = wait.textContent = text;
    if (ready && !started) {
      started = true;
      wait.remove();
      startChat(byId('view-chat'));
    } else if (ready && !wasReady) {
      refreshModels(); // another server may have taken the place
    }
    if (ready) await watchMemory();
    wasReady = ready;
    await new Promise((done) => setTimeout(done, ready ? 5000 : 1000));
  }
}

show(names.includes(location.hash.slice(1)) ? location.hash.slice(1) : 'chat');
watchHealth();
