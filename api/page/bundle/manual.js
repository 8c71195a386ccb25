// Ahead of Prism: it must not look for code in the page by itself.
globalThis.Prism = { manual: true, disableWorkerMessageHandler: true };
