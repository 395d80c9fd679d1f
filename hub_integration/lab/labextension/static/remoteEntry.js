/* How JupyterLab finds this extension.
 *
 * JupyterLab loads a prebuilt extension as a module-federation container: an object with init(scope)
 * and get(module) at window._JUPYTERLAB[NAME]. A bundler usually writes it, from npm packages worth
 * hundreds of megabytes. The extension is small, has no dependencies but JupyterLab's own modules,
 * and those come through the scope; so it is written by hand, is read as it is served, and the
 * wheel is built without npm. Nothing here is specific to one version of JupyterLab 4.
 */
(() => {
  "use strict";
  const NAME = "jupyterhub-gpushare";
  const folder = new URL(".", document.currentScript.src).href;
  // slice.js changes with the version of the package; a browser must not mix two of them.
  const version = new URL(document.currentScript.src).search;
  let shared = null;

  /* A module that JupyterLab shares. Where several versions are there, the one that is in use. */
  async function use(name) {
    const versions = shared[name];
    if (!versions) throw new Error(`${NAME}: this JupyterLab does not share ${name}`);
    const all = Object.values(versions);
    const entry = all.find((one) => one.loaded) || all[0];
    return (await entry.get())();
  }

  const modules = {
    "./extension": async () => {
      const { makePlugin } = await import(`${folder}slice.js${version}`);
      const plugin = await makePlugin(use);
      return { __esModule: true, default: plugin };
    },
    "./style": async () => {
      const link = document.createElement("link");
      link.rel = "stylesheet";
      link.href = `${folder}slice.css${version}`;
      document.head.appendChild(link);
      return {};
    },
  };

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = {
    init(scope) {
      shared = scope;
    },
    async get(name) {
      if (!modules[name]) throw new Error(`${NAME} has no module ${name}`);
      const module = await modules[name]();
      return () => module;
    },
  };
})();
