/* Keeps an open page live: parts that changed come by server-sent events and replace the old ones.
 * What is open stays open, what has the focus keeps it. Without this script the page is complete, and
 * as old as it is.
 */
"use strict";
(() => {
  const said = document.getElementById("gs-said");
  const xsrf = document.body.dataset.xsrf;

  const say = (text, bad) => {
    said.textContent = text;
    said.classList.toggle("gs-alarm", Boolean(bad));
  };

  /* Times come in UTC; the reader sees their own. */
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      const today = at.toDateString() === new Date().toDateString();
      const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      time.textContent = today ? clock : `${at.toLocaleDateString([], { weekday: "short" })} ${clock}`;
    }
  };

  const fill = async (details) => {
    const body = details.querySelector(".gs-body");
    if (!body || !details.open) return;
    try {
      const name = encodeURIComponent(details.dataset.node);
      const answer = await fetch(`${document.body.dataset.stream.replace("/stream", "")}/nodes/${name}`);
      if (answer.ok) replace(body, await answer.text());
    } catch {
      /* The next change tries again. */
    }
  };

  const replace = (part, html) => {
    const open = [...part.querySelectorAll("details[open]")].map((one) => one.dataset.key);
    const bodies = new Map(
      [...part.querySelectorAll("details[data-node][open] > .gs-body")].map((body) => [
        body.parentElement.dataset.key,
        body.innerHTML,
      ]),
    );
    const focused = part.contains(document.activeElement)
      ? document.activeElement.closest("[data-key]")
      : null;
    const focus = focused && focused.dataset.key;
    part.innerHTML = html;
    for (const details of part.querySelectorAll("details[data-key]")) {
      const key = details.dataset.key;
      if (!open.includes(key)) continue;
      if (bodies.has(key)) details.querySelector(".gs-body").innerHTML = bodies.get(key);
      details.open = true;
    }
    if (focus) {
      const found = [...part.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focus);
      if (found) (found.matches("details") ? found.querySelector("summary") : found).focus();
    }
    localise(part);
    filter();
  };

  /* Nodes come and go. */
  const order = (ids) => {
    const list = document.getElementById("nodes");
    const wanted = ids ? ids.split(" ") : [];
    for (const old of [...list.children]) if (!wanted.includes(old.id)) old.remove();
    wanted.forEach((id, place) => {
      let node = document.getElementById(id);
      if (!node) {
        node = document.createElement("section");
        node.id = id;
        node.className = "gs-node";
        node.dataset.part = "";
      }
      if (list.children[place] !== node) list.insertBefore(node, list.children[place] || null);
    });
  };

  const box = document.getElementById("gs-filter");
  const filter = () => {
    if (!box) return;
    const wanted = box.value.trim().toLowerCase();
    for (const node of document.querySelectorAll(".gs-node")) {
      node.hidden = Boolean(wanted) && !node.textContent.toLowerCase().includes(wanted);
    }
  };
  if (box) box.addEventListener("input", filter);

  let stream = null;
  let lastWord = Date.now();
  const listen = () => {
    if (!document.body.dataset.stream || document.hidden || stream) return;
    stream = new EventSource(document.body.dataset.stream);
    stream.addEventListener("parts", (event) => {
      lastWord = Date.now();
      const parts = JSON.parse(event.data);
      if ("order" in parts) order(parts.order);
      for (const [id, html] of Object.entries(parts)) {
        const part = document.getElementById(id);
        if (id !== "order" && part) replace(part, html);
      }
      document.documentElement.dataset.live = String(Number(document.documentElement.dataset.live || 0) + 1);
    });
    stream.addEventListener("gone", () => window.location.reload());
    stream.onerror = () => {
      /* The browser tries again by itself, but not after a refusal: then the login is over. */
      if (stream && stream.readyState === EventSource.CLOSED) {
        stream = null;
        window.setTimeout(listen, 10000);
      }
    };
  };
  /* A page that nobody sees asks for nothing. */
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && stream) {
      stream.close();
      stream = null;
    } else {
      listen();
    }
  });
  window.setInterval(() => {
    const state = document.getElementById("state");
    const silent = (Date.now() - lastWord) / 1000;
    state.classList.toggle("gs-silent", Boolean(document.body.dataset.stream) && silent > 45);
  }, 5000);

  document.addEventListener("toggle", (event) => {
    if (event.target.matches && event.target.matches("details[data-node]")) fill(event.target);
  }, true);

  /* A click on a slice opens its card's list at that slice. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.gs-seg");
    if (!link) return;
    const row = document.getElementById(link.hash.slice(1));
    if (!row) return;
    event.preventDefault();
    row.closest("details").open = true;
    for (const old of document.querySelectorAll(".gs-chosen")) old.classList.remove("gs-chosen");
    row.classList.add("gs-chosen");
    row.focus();
  });

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("[data-act]")) return;
    event.preventDefault();
    if (form.dataset.confirm && !window.confirm(form.dataset.confirm)) return;
    const button = form.querySelector("button");
    button.disabled = true;
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { Accept: "application/json", "X-XSRFToken": xsrf },
      });
      const body = await answer.json().catch(() => ({}));
      say(body.detail || (answer.ok ? "Done." : `That did not work (${answer.status}).`), !answer.ok);
      if (answer.ok) form.reset();
    } catch {
      say("The dashboard does not answer; try again.", true);
    } finally {
      button.disabled = false;
    }
  });

  localise(document);
  listen();
})();
