// In place of Node's punycode, for markdown-it: browsers write hosts in other scripts themselves.
/** @param {string} host */
export const toASCII = (host) => /^[\0-\x7f]*$/.test(host) ? host : new URL(`http://${host}`).hostname;
/** @param {string} host */
export const toUnicode = (host) => host;
export default { toASCII, toUnicode };
