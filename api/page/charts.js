// Drawing on canvas, in the colours of the style sheet and at the screen's own resolution; and bars of shares.
import { h } from './dom.js';

/** @type {Map<string, string>} */
const colours = new Map();
const forget = () => colours.clear();
addEventListener('themechange', forget);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', forget);

/**
 * A colour of the style sheet.
 * @param {string} name
 */
export function colour(name) {
  let value = colours.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    colours.set(name, value);
  }
  return value;
}

/**
 * The canvas, cleared, in units of CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} height
 */
export function begin(canvas, height) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth || 300;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '11px system-ui, sans-serif';
  return { pen, width };
}

/**
 * A round number not below the value: 1, 2 or 5 times a power of ten.
 * @param {number} value
 */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= value) || 10);
}

/** @param {number} value */
export function short(value) {
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  return String(Number(value.toPrecision(3)));
}

/**
 * A count, exactly.
 * @param {number} value
 */
export const exact = (value) => Math.round(value).toLocaleString('en');

/**
 * Lines over time.
 * @param {HTMLCanvasElement} canvas
 * @param {{ times: number[], lines: { colour: string, values: (number | null)[] }[], span: number, unit: string,
 *   most?: number }} what times in seconds before now, below 0
 */
export function lineChart(canvas, what) {
  const height = 150, left = 52, bottom = 18;
  const { pen, width } = begin(canvas, height);
  const high = what.most ?? roundUp(Math.max(...what.lines.flatMap((line) => line.values.map((value) => value ?? 0)), 0));
  /** @param {number} t */
  const x = (t) => left + (width - left - 4) * (1 + t / what.span);
  /** @param {number} v */
  const y = (v) => 6 + (height - bottom - 6) * (1 - v / high);
  pen.textBaseline = 'middle';
  for (const part of [0, 0.5, 1]) {
    pen.fillStyle = colour('line');
    pen.fillRect(left, Math.round(y(part * high)), width - left, 1);
    pen.fillStyle = colour('dim');
    pen.textAlign = 'right';
    pen.fillText(`${short(part * high)}${part === 1 ? ` ${what.unit}` : ''}`, left - 5, y(part * high) + (part === 1 ? 3 : 0), left - 6);
  }
  pen.textAlign = 'center';
  for (const part of [0, 0.5, 1]) {
    const ago = what.span * (1 - part);
    pen.fillText(ago === 0 ? 'now' : ago >= 120 ? `${Math.round(ago / 60)} min` : `${Math.round(ago)} s`,
      Math.max(left + 18, Math.min(width - 16, x(-ago))), height - 7);
  }
  pen.lineWidth = 1.6;
  for (const line of what.lines) {
    pen.strokeStyle = colour(line.colour);
    pen.beginPath();
    let down = false;
    line.values.forEach((value, i) => {
      if (value === null || what.times[i] < -what.span) {
        down = false;
        return;
      }
      if (down) pen.lineTo(x(what.times[i]), y(Math.min(value, high)));
      else pen.moveTo(x(what.times[i]), y(Math.min(value, high)));
      down = true;
    });
    pen.stroke();
  }
}

/**
 * A bar of what a time is made of.
 * @param {readonly { shade: string, share: number, text: string }[]} parts `share` of the whole
 */
export function shareBar(parts) {
  return h('span', { class: 'spent-bar', role: 'img', 'aria-label': parts.map(({ text }) => text).join(', ') },
    ...parts.map(({ shade, share, text }) => {
      const made = h('i', { title: text });
      made.style.background = `var(--${shade})`;
      made.style.flexGrow = String(share);
      return made;
    }));
}
