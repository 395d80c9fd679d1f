/* The slice in JupyterLab: an item in the status bar, a panel behind it, and what cannot wait.
 *
 * All numbers come from this server's own endpoint. While the tab is hidden nothing is asked: a tab
 * that nobody looks at must not keep a server alive.
 */
import { Panel } from "./panel.js";
import { models, over, secondsLeft, usage } from "./words.js";

const EVERY = 5000;
const LATE = 60000; // after trouble
const WARN_SECONDS = 300;

class Slice {
  constructor(lab) {
    this.lab = lab;
    this.state = null;
    this.trouble = "";
    this.listeners = new Set();
    this.timer = 0;
    this.inFlight = false;
  }

  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    this.refresh();
  }

  async refresh() {
    if (this.inFlight) return;
    this.inFlight = true;
    window.clearTimeout(this.timer);
    try {
      this.state = await this.request("slice");
      this.trouble = "";
    } catch (error) {
      this.trouble = error.message || String(error);
    } finally {
      this.inFlight = false;
      this.tell();
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(
        () => document.hidden || this.refresh(),
        this.trouble ? LATE : EVERY,
      );
    }
  }

  async hold() {
    const verdict = await this.request("hold", { method: "POST", body: "{}" });
    await this.refresh();
    return verdict;
  }

  async stopKernel(id) {
    await this.lab.kernels.shutdown(id);
    await this.refresh();
  }

  async request(path, init = {}) {
    const { ServerConnection, URLExt, settings } = this.lab;
    const url = URLExt.join(settings.baseUrl, "gpushare", path);
    const answer = await ServerConnection.makeRequest(url, init, settings);
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(body.message || `The server answered ${answer.status}.`);
    return body;
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

/* The item in the status bar. A real button, so that it is reached by keyboard. */
function makeItem(slice, widgets, statusbar) {
  const { Widget } = widgets;
  const item = new Widget();
  item.addClass("gpushare-item");
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-haspopup", "dialog");
  item.node.appendChild(button);
  let popup = null;
  button.addEventListener("click", () => {
    if (popup && !popup.isDisposed) {
      popup.dispose();
      return;
    }
    const body = new Widget();
    // The popup sets the size of its body; the panel inside keeps its own.
    const inside = document.createElement("div");
    body.node.appendChild(inside);
    const panel = new Panel(slice, inside, () => popup && popup.dispose());
    popup = statusbar.showPopup({ body, anchor: item, align: "left", hasDynamicSize: true });
    body.disposed.connect(() => {
      panel.close();
      button.focus();
    });
    panel.focus();
  });
  const show = () => {
    const state = slice.state;
    const cards = state ? state.cards : [];
    item.setHidden(!cards.length && !(state && state.time && state.time.ends_at));
    const text = cards.length ? `${models(cards)} · ${usage(cards)}` : "server time";
    if (button.textContent !== text) button.textContent = text;
    const left = state ? secondsLeft(state.time, Date.now()) : null;
    item.toggleClass("gpushare-over", over(cards));
    item.toggleClass("gpushare-ending", left !== null && left <= WARN_SECONDS);
    item.toggleClass("gpushare-stale", Boolean(slice.trouble));
    const about = over(cards) ? "over its limit; " : "";
    button.title = slice.trouble
      ? `My GPU slice, as last known: ${slice.trouble}`
      : `My GPU slice: ${about}click for more`;
    button.setAttribute("aria-label", cards.length ? `My GPU slice: ${about}${text}` : text);
  };
  slice.listeners.add(show);
  item.disposed.connect(() => slice.listeners.delete(show));
  item.setHidden(true);
  return item;
}

/* What a user must see without looking for it. */
class Alarms {
  constructor(slice, Notification) {
    this.slice = slice;
    this.Notification = Notification;
    this.ending = null;
    this.endsAt = "";
    this.seen = this.readSeen();
    slice.listeners.add(() => this.check());
  }

  check() {
    const state = this.slice.state;
    if (!state || this.slice.trouble) return;
    this.warn(state.time);
    for (const notice of state.notices) {
      if (notice.id > this.seen) this.notice(notice);
    }
  }

  warn(time) {
    const left = secondsLeft(time, Date.now());
    const soon = left !== null && left <= Math.max(WARN_SECONDS, time.warn_seconds || 0);
    if (!soon) {
      if (this.ending) this.Notification.dismiss(this.ending);
      this.ending = null;
      this.endsAt = "";
      return;
    }
    if (this.ending && this.endsAt === time.ends_at) return;
    const at = new Date(time.ends_at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const hold = time.hold || {};
    const message = `This server ends at ${at}, and gives its GPU slice back, unless it is used.`;
    const actions = hold.allowed === false ? [] : [{
      label: `Keep for ${hold.minutes || 30} min`,
      displayType: "accent",
      callback: () => this.keep(),
    }];
    if (this.ending) this.Notification.dismiss(this.ending);
    this.endsAt = time.ends_at;
    this.ending = this.Notification.warning(message, { autoClose: false, actions });
  }

  async keep() {
    try {
      await this.slice.hold();
    } catch (error) {
      this.Notification.error(error.message, { autoClose: false });
    }
  }

  notice(notice) {
    this.seen = notice.id;
    this.keepSeen();
    const good = notice.kind === "GPUMemoryWithinSlice";
    const text = `GPU: this server ${notice.text}`;
    if (good) this.Notification.success(text, { autoClose: 10000 });
    else this.Notification.error(text, { autoClose: false });
  }

  /* A page that is loaded again does not tell old news again. Notices count up in one pod. */
  readSeen() {
    try {
      return Number(window.sessionStorage.getItem("gpushare-notice")) || 0;
    } catch {
      return 0;
    }
  }

  keepSeen() {
    try {
      window.sessionStorage.setItem("gpushare-notice", String(this.seen));
    } catch {
      /* Without storage they are told again, which does no harm. */
    }
  }
}

export async function makePlugin(use) {
  const [statusbar, apputils, coreutils, services, widgets] = await Promise.all(
    [
      "@jupyterlab/statusbar",
      "@jupyterlab/apputils",
      "@jupyterlab/coreutils",
      "@jupyterlab/services",
      "@lumino/widgets",
    ].map(use),
  );
  return {
    id: "jupyterhub-gpushare:slice",
    description: "Shows the GPU slice of this server",
    autoStart: true,
    optional: [statusbar.IStatusBar],
    activate: (app, bar) => {
      const slice = new Slice({
        kernels: app.serviceManager.kernels,
        settings: app.serviceManager.serverSettings,
        ServerConnection: services.ServerConnection,
        URLExt: coreutils.URLExt,
      });
      new Alarms(slice, apputils.Notification);
      if (bar) {
        const item = makeItem(slice, widgets, statusbar);
        bar.registerStatusItem("jupyterhub-gpushare:slice", { item, align: "left", rank: 4 });
      }
      app.started.then(() => slice.start());
    },
  };
}
