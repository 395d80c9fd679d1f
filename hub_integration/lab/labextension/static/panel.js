/* The panel behind the status item: what is used, by which kernel, and for how long it is there.
 *
 * It is built once and then updated in place, so that a button keeps its focus while numbers change.
 */
import { duration, gib, secondsLeft } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 40;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, act) {
  const made = element("button", "jp-mod-styled gpushare-button", text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/* A filled line over the last minutes. ``most`` is the top of the plot. */
class Plot {
  constructor(name) {
    this.name = name;
    this.node = element("figure", "gpushare-plot");
    this.words = element("figcaption");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("aria-hidden", "true");
    this.area = document.createElementNS(SVG, "path");
    this.svg.appendChild(this.area);
    this.node.append(this.words, this.svg);
  }

  show(points, most, words) {
    this.words.textContent = `${this.name}: ${words}`;
    const last = points[points.length - 1];
    this.node.hidden = !last;
    if (!last) return;
    const span = Math.max(60, last[0] - points[0][0]);
    const x = (at) => (WIDTH * (1 - (last[0] - at) / span)).toFixed(1);
    const y = (value) => (HEIGHT * (1 - Math.min(1, value / Math.max(most, 1)))).toFixed(1);
    const line = points.map(([at, value]) => `L${x(at)} ${y(value)}`).join("");
    const first = x(points[0][0]);
    this.area.setAttribute("d", `M${first} ${HEIGHT}${line}L${WIDTH} ${HEIGHT}Z`);
  }
}

export class Panel {
  constructor(slice, node, close) {
    this.slice = slice;
    this.node = node;
    this.closePopup = close;
    node.classList.add("gpushare-panel");
    node.setAttribute("role", "dialog");
    node.setAttribute("aria-label", "My GPU slice");
    node.tabIndex = -1;
    this.title = element("h2", "", "My GPU slice");
    this.cards = element("div");
    this.memory = new Plot("Memory");
    this.activity = new Plot("Utilisation");
    this.holders = element("div");
    this.time = element("p", "gpushare-time");
    this.keep = button("Keep for 30 min", () => this.hold());
    this.said = element("p", "gpushare-said");
    this.said.setAttribute("role", "status");
    const history = element("div", "gpushare-plots");
    history.append(this.memory.node, this.activity.node);
    const last = element("div", "gpushare-last");
    last.append(this.time, this.keep);
    node.append(this.title, this.cards, history, this.holders, last, this.said);
    // Wherever the focus is: a button that goes takes it along.
    this.escape = (event) => {
      if (event.key === "Escape") this.closePopup();
    };
    document.addEventListener("keydown", this.escape, true);
    this.rows = new Map();
    this.listener = () => this.show();
    slice.listeners.add(this.listener);
    this.clock = window.setInterval(this.listener, 1000);
    this.show();
  }

  close() {
    this.slice.listeners.delete(this.listener);
    document.removeEventListener("keydown", this.escape, true);
    window.clearInterval(this.clock);
  }

  focus() {
    this.node.focus();
  }

  show() {
    const state = this.slice.state;
    if (!state) return;
    this.showCards(state);
    this.showHistory(state);
    this.showHolders(state.cards);
    this.showTime(state.time);
    if (this.slice.trouble) this.said.textContent = `As last known. ${this.slice.trouble}`;
    else if (state.problem) this.said.textContent = state.problem;
  }

  showCards(state) {
    const texts = state.cards.map((card) => {
      const parts = [`${gib(card.used_mib)} of ${gib(card.limit_mib)} GiB of memory`];
      if (card.limit_mib > card.slice_mib) {
        parts.push(`${gib(card.limit_mib - card.slice_mib)} GiB of it borrowed`);
      }
      if (card.peak_mib > card.used_mib) parts.push(`at most ${gib(card.peak_mib)} so far`);
      parts.push(card.percent ? `${card.percent} % of its compute` : "compute shared with others");
      return [`${card.model}, card ${card.index}`, parts.join(", "), card];
    });
    const key = JSON.stringify(texts.map(([name, text, card]) => [name, text, card.over_since]));
    if (key === this.cardsKey) return;
    this.cardsKey = key;
    this.cards.replaceChildren(...texts.map(([name, text, card]) => {
      const box = element("div", "gpushare-card");
      const head = element("p");
      head.append(element("strong", "", name), ` ${text}`);
      const bar = element("div", "gpushare-bar");
      const fill = element("div");
      fill.style.width = `${Math.min(100, (100 * card.used_mib) / Math.max(1, card.limit_mib))}%`;
      bar.appendChild(fill);
      box.append(head, bar);
      if (card.over_since !== null) {
        const over = gib(card.used_mib - card.limit_mib);
        const what = `Over its limit by ${over} GiB: free memory, or the biggest GPU process is ended.`;
        box.appendChild(element("p", "gpushare-alarm", what));
      }
      return box;
    }));
  }

  showHistory(state) {
    const limit = state.cards.reduce((sum, card) => sum + card.limit_mib, 0);
    const points = state.history;
    const minutes = points.length ? duration(points[points.length - 1][0] - points[0][0]) : "";
    const used = points.map(([at, mib]) => [at, mib]);
    const most = Math.max(0, ...used.map(([, mib]) => mib));
    this.memory.show(used, limit, `at most ${gib(most)} GiB in the last ${minutes}`);
    const busy = points.filter(([, , sm]) => sm !== null).map(([at, , sm]) => [at, sm]);
    const average = busy.reduce((sum, [, sm]) => sum + sm, 0) / Math.max(1, busy.length);
    this.activity.show(busy, 100, `${Math.round(average)} % on average in the last ${minutes}`);
  }

  showHolders(cards) {
    const processes = cards.flatMap((card) => card.processes);
    const wanted = new Map(processes.map((process) => [`${process.pid} ${process.name}`, process]));
    for (const [key, row] of this.rows) {
      if (!wanted.has(key)) {
        // The focus must not fall out of the panel with its button.
        if (row.node.contains(document.activeElement)) this.node.focus();
        row.node.remove();
        this.rows.delete(key);
      }
    }
    for (const [key, process] of wanted) {
      if (!this.rows.has(key)) this.rows.set(key, this.addRow(process));
      const row = this.rows.get(key);
      const held = process.used_mib === null ? "memory not known" : `${gib(process.used_mib)} GiB`;
      const name = process.kernel ? process.kernel.title : `${process.name || "process"} (${process.pid})`;
      const text = `${name}: ${held}`;
      if (row.words.textContent !== text) row.words.textContent = text;
      row.stop.hidden = !process.kernel;
      row.kernel = process.kernel;
      row.stop.setAttribute("aria-label", `Stop kernel of ${name}`);
    }
    this.holders.hidden = !wanted.size;
  }

  addRow(process) {
    const node = element("div", "gpushare-holder");
    const words = element("span");
    const row = { node, words, kernel: process.kernel };
    row.stop = button("Stop kernel", async () => {
      if (!row.kernel) return;
      this.node.focus();
      row.stop.disabled = true;
      this.said.textContent = `Stopping the kernel of ${row.kernel.title}…`;
      try {
        await this.slice.stopKernel(row.kernel.id);
        this.said.textContent = "Stopped. Its memory comes back within seconds.";
      } catch (error) {
        this.said.textContent = error.message;
        row.stop.disabled = false;
      }
    });
    node.append(words, row.stop);
    this.holders.appendChild(node);
    return row;
  }

  showTime(time) {
    const left = secondsLeft(time, Date.now());
    const hold = (time && time.hold) || {};
    let words = "This server does not end by itself.";
    if (left !== null) {
      words = `Ends in ${duration(left)} unless it is used.`;
    } else if (time && time.held_until && Date.parse(time.held_until) > Date.now()) {
      words = `Kept for ${duration((Date.parse(time.held_until) - Date.now()) / 1000)}.`;
    } else if (time) {
      words = time.sentence || "Does not end while it is used.";
    }
    if (this.time.textContent !== words) this.time.textContent = words;
    this.keep.textContent = `Keep for ${hold.minutes || 30} min`;
    this.keep.hidden = !time || (hold.allowed === false && !hold.why_not);
    this.keep.disabled = Boolean(this.holding) || hold.allowed === false;
    this.keep.title = hold.why_not || "";
  }

  async hold() {
    this.holding = true;
    this.keep.disabled = true;
    try {
      const verdict = await this.slice.hold();
      const until = verdict.held_until && new Date(verdict.held_until);
      const at = until && until.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      this.said.textContent = at ? `Kept until ${at}.` : "Kept.";
    } catch (error) {
      this.said.textContent = error.message;
    } finally {
      this.holding = false;
      this.show();
    }
  }
}
