/** @param {HTMLElement} view @param {boolean} visible */
export function showEngine(view, visible) { void view; void visible; }
