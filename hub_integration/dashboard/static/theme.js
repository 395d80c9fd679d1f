/* Before the page is drawn: the theme that JupyterHub's own pages use, kept where they keep it. */
"use strict";
(() => {
  const KEY = "jupyterhub-bs-theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return window.localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const show = () => {
    const wanted = stored();
    const fixed = wanted === "light" || wanted === "dark";
    document.documentElement.dataset.bsTheme = fixed ? wanted : dark.matches ? "dark" : "light";
  };
  show();
  dark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("gs-theme").addEventListener("click", () => {
      const now = document.documentElement.dataset.bsTheme === "dark" ? "light" : "dark";
      try {
        window.localStorage.setItem(KEY, now);
      } catch {
        /* It holds for this page. */
      }
      document.documentElement.dataset.bsTheme = now;
    });
  });
})();
