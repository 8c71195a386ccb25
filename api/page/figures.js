/** @param {HTMLElement} view @param {boolean} visible */
export function showFigures(view, visible) { void view; void visible; }
