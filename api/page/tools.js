// Tools that the model may call: their list, and how calls are answered: by hand, or by a small function in a frame that
// has an origin of its own and can load nothing.
import { button, dialog, h } from './dom.js';
import { recall, remember } from './store.js';

/** @typedef {{ name: string, description: string, parameters: string, code: string, on: boolean }} Tool */

/** @type {Tool[]} */
const tools = recall('tools', []);
const longestRun = 10000; // ms

/**
 * As a request has them. Throws a sentence about one that cannot be read.
 * @returns {Record<string, any>}
 */
export function toolFields() {
  const on = tools.filter((tool) => tool.on);
  return on.length === 0 ? {} : { tools: on.map((tool) => {
    let parameters;
    try {
      parameters = JSON.parse(tool.parameters || '{"type": "object", "properties": {}}');
    } catch {
      throw new Error(`The parameters of the tool ${tool.name} are not JSON.`);
    }
    return { type: 'function', function: { name: tool.name, description: tool.description, parameters } };
  }) };
}

export const toolsOn = () => tools.filter((tool) => tool.on).length;

/**
 * The function of a tool; nothing if its calls are answered by hand.
 * @param {string} name
 */
export function codeOf(name) {
  return tools.find((tool) => tool.on && tool.name === name)?.code.trim() || '';
}

/**
 * Runs a function's body on a call's arguments. Rejects with a sentence.
 * @param {string} code
 * @param {string} args as JSON
 * @returns {Promise<string>}
 */
export function run(code, args) {
  return new Promise((done, fail) => {
    /** @type {any} */
    let given;
    try {
      given = JSON.parse(args || '{}');
    } catch {
      return fail(new Error('The arguments are not JSON.'));
    }
    const frame = h('iframe', { sandbox: 'allow-scripts', src: '/page/sandbox.html', title: 'Runs a tool', class: 'unseen',
      tabindex: '-1' });
    /** @param {() => void} what */
    const end = (what) => {
      clearTimeout(timer);
      removeEventListener('message', hear);
      frame.remove();
      what();
    };
    const timer = setTimeout(() => end(() => fail(new Error('The function took longer than 10 s.'))), longestRun);
    /** @param {MessageEvent} event */
    const hear = (event) => {
      if (event.source !== frame.contentWindow) return;
      if (event.data.ready) frame.contentWindow?.postMessage({ code, args: given }, '*');
      else if (typeof event.data.ok === 'string') end(() => done(event.data.ok));
      else end(() => fail(new Error(String(event.data.wrong))));
    };
    addEventListener('message', hear);
    document.body.append(frame);
  });
}

/** @param {() => void} changed */
export function editTools(changed) {
  return dialog('Tools', (close) => {
    const list = h('div', { class: 'tool-list' });
    const keep = () => { remember('tools', tools); changed(); };
    const show = () => list.replaceChildren(...tools.map((tool, i) => toolForm(tool, i, keep, () => {
      tools.splice(i, 1);
      keep();
      show();
    })));
    show();
    return [
      h('p', { class: 'dim' }, 'The model may call these. A call is answered by the JavaScript function, in a frame that can ' +
        'load nothing, or by hand where there is none.'),
      list,
      h('div', { class: 'row' },
        button('Add a tool', () => {
          tools.push({ name: `tool_${tools.length + 1}`, description: '', on: true, code: '',
            parameters: '{"type": "object", "properties": {}}' });
          keep();
          show();
        }),
        h('span', { class: 'grow' }), button('Done', () => close(null), { class: 'main' })),
    ];
  });
}

/** @param {Tool} tool @param {number} i @param {() => void} keep @param {() => void} remove */
function toolForm(tool, i, keep, remove) {
  /** @param {'name' | 'description' | 'parameters' | 'code'} field @param {string} label @param {number} rows */
  const field = (field, label, rows) => {
    const input = rows ? h('textarea', { rows, spellcheck: 'false' }) : h('input', {});
    input.value = tool[field];
    input.addEventListener('input', () => { tool[field] = input.value; keep(); });
    return h('label', { class: 'field' }, h('span', {}, label), input);
  };
  const on = h('input', { type: 'checkbox', checked: tool.on, onchange: () => { tool.on = on.checked; keep(); } });
  return h('fieldset', {}, h('legend', {}, `Tool ${i + 1}`),
    h('label', {}, on, ' offered to the model'),
    field('name', 'Name', 0), field('description', 'What it does', 0), field('parameters', 'Parameters, a JSON Schema', 4),
    field('code', 'JavaScript: the body of a function of args, such as  return {sum: args.a + args.b};', 3),
    button('Remove', remove, { class: 'quiet' }));
}
