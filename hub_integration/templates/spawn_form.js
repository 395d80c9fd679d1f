(() => {
  "use strict";
  const form = document.getElementById("gpushare-form");
  const byId = (id) => document.getElementById(id);
  const say = byId("gpushare-status"), queue = byId("gpushare-queue");
  let button = null, start = "";

  const picked = () => {
    const profile = form.querySelector("input[name=profile]:checked");
    const parts = profile && byId(profile.id + "-parts");
    return parts ? parts.querySelector("input[type=radio]:checked") : null;
  };
  // None is free: starting means standing in line, and that is what the button says then.
  const label = () => {
    const slice = picked();
    const full = Boolean(slice && slice.closest(".gpushare-full"));
    const title = full ? slice.parentElement.querySelector(".gpushare-title").textContent : "";
    if (button) button.textContent = full ? `Queue for ${title}` : start;
    queue.hidden = !full;
    queue.textContent = full ? "None is free now. You can stand in line: your server starts by itself when it is your turn." : "";
  };
  form.addEventListener("change", label);
  window.addEventListener("pageshow", () => label());

  // The number of a size of one's own, with a slider beside it.
  for (const box of form.querySelectorAll(".gpushare-custom")) {
    const number = box.querySelector("[type=number]");
    const slider = document.createElement("input");
    Object.assign(slider, {type: "range", className: "form-range", min: number.min, max: number.max, step: number.step});
    slider.setAttribute("aria-label", "Size in GiB");
    slider.value = number.value || number.min;
    if (!number.value) number.value = slider.value;
    slider.addEventListener("input", () => { number.value = slider.value; });
    number.addEventListener("input", () => { slider.value = number.value; });
    number.before(slider);
  }

  const show = (numbers) => {
    const mine = picked();
    for (const [id, [words, full]] of Object.entries(numbers.rows)) {
      const place = byId(id + "-words");
      if (!place) continue;
      place.closest(".gpushare-slice").classList.toggle("gpushare-full", full);
      if (place.textContent === words) continue;
      place.textContent = words;
      if (mine && mine.id === id) say.textContent = words;
    }
    for (const [id, [words, percent]] of Object.entries(numbers.bars)) {
      if (!byId(id + "-memory")) continue;
      byId(id + "-memory").textContent = words;
      byId(id + "-bar").style.width = percent + "%";
      byId(id + "-bar").parentElement.hidden = !words;
    }
    byId("gpushare-updated").textContent = numbers.updated;
    byId("gpushare-dot").hidden = false;
    label();
  };

  let stream = null;
  const listen = () => {
    if (document.hidden) {
      if (stream) stream.close();
      stream = null;
    } else if (!stream && form.dataset.live) {
      stream = new EventSource(form.dataset.live);
      stream.onmessage = (event) => show(JSON.parse(event.data));
      // The browser connects again by itself; until then, nothing claims to be live.
      stream.onerror = () => { byId("gpushare-dot").hidden = true; };
    }
  };
  document.addEventListener("visibilitychange", listen);
  // The Hub's button stands behind this script.
  document.addEventListener("DOMContentLoaded", () => {
    button = document.querySelector("#spawn_form button[type=submit]");
    start = button ? button.textContent : "";
    label();
    listen();
  });
})();
